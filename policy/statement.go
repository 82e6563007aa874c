package policy

import "strings"

// statement is one of an IAM policy, as far as the pack looks at it.
type statement struct {
	effect             string
	actions, resources []string
	inverted           bool // NotAction or NotResource
	everyone           bool // as principal
	conditional        bool
	// secureTransport is what the condition Bool aws:SecureTransport asks for.
	secureTransport string
}

// statements reads a policy document; what is no statement is left out.
func statements(document any) []statement {
	object, _ := document.(map[string]any)
	var found []statement
	for _, element := range list(object["Statement"]) {
		s, ok := element.(map[string]any)
		if !ok {
			continue
		}
		st := statement{actions: texts(s["Action"]), resources: texts(s["Resource"])}
		st.effect, _ = s["Effect"].(string)
		st.inverted = s["NotAction"] != nil || s["NotResource"] != nil
		st.everyone = s["Principal"] == "*" || s["NotPrincipal"] != nil
		if principal, ok := s["Principal"].(map[string]any); ok {
			for _, name := range texts(principal["AWS"]) {
				st.everyone = st.everyone || name == "*"
			}
		}
		condition, _ := s["Condition"].(map[string]any)
		st.conditional = len(condition) > 0
		if bools, ok := condition["Bool"].(map[string]any); ok {
			for key, value := range bools {
				if strings.EqualFold(key, "aws:SecureTransport") {
					for _, v := range list(value) {
						switch v := v.(type) {
						case string:
							st.secureTransport = v
						case bool:
							st.secureTransport = map[bool]string{true: "true", false: "false"}[v]
						}
					}
				}
			}
		}
		found = append(found, st)
	}
	return found
}

// deniesPlainHTTP says whether the statement denies everyone what comes without
// TLS.
func (s statement) deniesPlainHTTP() bool {
	if s.effect != "Deny" || !s.everyone || s.secureTransport != "false" {
		return false
	}
	for _, action := range s.actions {
		if action == "s3:*" || action == "*" {
			return true
		}
	}
	return false
}

func texts(value any) []string {
	var found []string
	for _, v := range list(value) {
		if s, ok := v.(string); ok {
			found = append(found, s)
		}
	}
	return found
}
