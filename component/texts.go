package component

// text is an argument that is too long for a function's environment, which
// holds 4 KB in all: it becomes an object in the runs bucket, and the variable
// its address.
type text struct{ field, object, env, content string }

// promptTexts are those of the functions that generate.
func (a Args) promptTexts() []text {
	return given([]text{
		{"systemPrompt", "system-prompt", "SWARM_SYSTEM_PROMPT", a.SystemPrompt},
		{"userTemplate", "user-template", "SWARM_USER_TEMPLATE", a.UserTemplate},
		{"chatTemplate", "chat-template", "SWARM_CHAT_TEMPLATE", a.ChatTemplate},
		{"grammar", "grammar", "SWARM_GRAMMAR", a.Grammar},
	})
}

// mailTexts are those of the function that mails.
func (a Args) mailTexts() []text {
	return given([]text{
		{"subjectTemplate", "subject-template", "SWARM_SUBJECT_TEMPLATE", a.SubjectTemplate},
		{"htmlTemplate", "html-template", "SWARM_HTML_TEMPLATE", a.HtmlTemplate},
		{"textTemplate", "text-template", "SWARM_TEXT_TEMPLATE", a.TextTemplate},
	})
}

// texts are all of them.
func (a Args) texts() []text { return append(a.promptTexts(), a.mailTexts()...) }

// given leaves out the texts that have the default.
func given(all []text) []text {
	var list []text
	for _, t := range all {
		if t.content != "" {
			list = append(list, t)
		}
	}
	return list
}
