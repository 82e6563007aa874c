package llama

import _ "github.com/briefing-swarm/briefing-swarm/runtime/engine/llama/libffi" // says in one line that libffi is missing
