package briefing

import "testing"

func TestTrimUnfinished(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"cut in a sentence", "Good morning Ana! It rains today. You have", "Good morning Ana! It rains today."},
		{"whole", "It rains today.", "It rains today."},
		{"white space after", "It rains today. \n", "It rains today."},
		{"no sentence", "Good morning Ana, it", "Good morning Ana, it"},
		{"too little would stay", "Hi! Today there is much more to tell than fits into", "Hi! Today there is much more to tell than fits into"},
		{"decimal point", "It is warm in Bern today. There are 3.5 degr", "It is warm in Bern today."},
		{"quote closes", `She wrote "call me." And th`, `She wrote "call me."`},
		{"Japanese", "おはようございます。今日は雨です。会議が", "おはようございます。今日は雨です。"},
		{"Arabic", "صباح الخير. هل أنت مستعد؟ لدي", "صباح الخير. هل أنت مستعد؟"},
		{"empty", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := TrimUnfinished(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
