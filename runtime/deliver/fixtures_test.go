package deliver

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

var morning = time.Date(2026, time.November, 30, 8, 0, 0, 0, time.UTC)

const (
	english = "Good morning. You have three meetings today; the first one, with the design team, starts at 9:30 and moved to room 4.\n\n" +
		"**Before noon**\n- Review the pricing draft that Priya shared last night\n- Confirm the venue for the offsite: they hold it until 12:00\n- Call back the bank\n\n" +
		"Rain is likely from 15:00, so an umbrella helps on the way to the dentist."
	german   = "Guten Morgen! Heute stehen zwei Termine an: um 10:00 Uhr das Gespräch mit Frau Müller, um 14:30 Uhr die Übergabe an das Großkundenteam.\n\nDer Zug um 17:12 Uhr fällt aus; die nächste Verbindung geht um 17:42 Uhr ab Gleis 8."
	arabic   = "صباح الخير. لديك اليوم ثلاثة اجتماعات، يبدأ أولها الساعة 9:30 مع فريق التصميم في القاعة 4.\n\n- مراجعة مسودة الأسعار\n- تأكيد مكان اللقاء قبل الساعة 12:00\n\nالطقس مشمس ودرجة الحرارة 24 مئوية."
	hebrew   = "בוקר טוב. היום מחכות לך שתי פגישות, הראשונה בשעה 9:30.\n\nכדאי לקחת מטרייה: צפוי גשם אחר הצהריים."
	japanese = "おはようございます。本日の会議は三件です。最初の会議は午前九時三十分から、デザインチームと第四会議室で行われます。\n\n午後は雨の予報ですので、傘をお持ちください。"
	hindi    = "सुप्रभात। आज आपकी तीन बैठकें हैं, पहली सुबह 9:30 बजे डिज़ाइन टीम के साथ है।\n\nदोपहर में बारिश हो सकती है, छाता साथ रखें।"
	emoji    = "Morning! ☀️ 3 things today:\n1. Gym with Sam 🏋🏽‍♀️\n2. Family call 👨‍👩‍👧‍👦 at 18:00\n3. Flags: 🇩🇪 🇯🇵 🏴󠁧󠁢󠁳󠁣󠁴󠁿\n\nHave a good one! 🎉🎉🎉"
)

// sampleRows are rows that mail must handle: scripts, lengths, addresses, and
// text that tries to be more than text. All are ok and have an address.
func sampleRows() []briefing.Row {
	rows := []briefing.Row{
		{Email: "jane.doe@example.com", Name: "Jane Doe", Locale: "en-US", Subject: "Three meetings, and the offsite venue needs a word from you", Briefing: english},
		{Email: "jane.doe@example.com", Name: "Jane Doe", Locale: "en-GB", Subject: "The same address under a second user", Briefing: english},
		{Email: "juergen@example.de", Name: "Jürgen Groß", Locale: "de-DE", Subject: "Zwei Termine, und der Zug um 17:12 Uhr fällt aus", Briefing: german},
		{Email: "layla@example.com", Name: "ليلى حداد", Locale: "ar-EG", Subject: "ثلاثة اجتماعات اليوم وطقس مشمس", Briefing: arabic},
		{Email: "noa@example.com", Name: "נועה לוי", Locale: "he", Subject: "שתי פגישות וגשם אחר הצהריים", Briefing: hebrew},
		{Email: "yuki@example.jp", Name: "佐藤 由紀", Locale: "ja_JP", Subject: "本日の会議は三件、午後は雨の予報です", Briefing: japanese},
		{Email: "asha@example.in", Name: "आशा", Locale: "hi-IN", Subject: "आज तीन बैठकें", Briefing: hindi},
		{Email: "sam@example.com", Name: "Sam 🦊", Locale: "en", Subject: "☀️ Gym, family, flags 🇩🇪", Briefing: emoji},
		{Email: "first.last+briefing@example.com", Name: "Plus Address", Subject: "Plus addresses", Briefing: "Short."},
		{Email: `"quoted local"@example.com`, Name: `Quo "ted" Local`, Subject: "Quoted local part", Briefing: "Short."},
		{Email: `"with@at.and\\backslash"@example.com`, Subject: "At sign in the local part", Briefing: "Short."},
		{Email: "o'brien@example.ie", Name: "Conan O'Brien, Jr.", Subject: "Comma in the name", Briefing: "Short."},
		{Email: "info@bücher.example", Name: "Bücher", Locale: "de", Subject: "Internationale Domain", Briefing: german},
		{Email: "user@例え.テスト", Name: "例え", Locale: "ja", Subject: "国際化ドメイン", Briefing: japanese},
		{Email: "trailing.dot@example.com.", Subject: "Trailing dot", Briefing: "Short."},
		{Email: "long@example.com", Subject: strings.Repeat("A rather long subject about many things ", 20), Briefing: english},
		{Email: "unbroken@example.com", Subject: strings.Repeat("x", 500), Briefing: strings.Repeat("y", 400)},
		{Email: "cjk-long@example.com", Locale: "zh-CN", Subject: strings.Repeat("今天的会议", 100), Briefing: strings.Repeat("今天有三个会议。", 200)},
		{Email: "family@example.com", Subject: strings.Repeat("👨‍👩‍👧‍👦", 60), Briefing: emoji},
		{Email: "inject-subject@example.com", Subject: "Hello\r\nBcc: everybody@example.com\r\n\r\nbody", Briefing: "Short."},
		{Email: "inject-name@example.com", Name: "Eve\r\nBcc: everybody@example.com", Subject: "Injected name", Briefing: "Short."},
		{Email: "nul@example.com", Name: "N\x00ul", Subject: "N\x00ul \x1b[31m", Briefing: "N\x00ul \x07bell and \x1b[31mescape\x1b[0m."},
		{Email: "encoded-word@example.com", Name: "=?utf-8?q?Bcc=3A?=", Subject: "=?utf-8?q?=0D=0ABcc:_x@example.com?=", Briefing: "Short."},
		{Email: "reorder@example.com", Name: "moc.elpmaxe\u202e", Subject: "a\u202eb", Briefing: "Short."},
		{Email: "html@example.com", Name: "<script>alert(1)</script>", Subject: "<b>Bold?</b> & \"quotes\"", Briefing: "<script>alert(1)</script> <img src=https://evil.example/x.png onerror=alert(1)> & {{.Name}} \"quoted\" 'single'"},
		{Email: "invalid-utf8@example.com", Name: "\xff\xfe", Subject: "bad \xff byte", Briefing: "bad \xc3\x28 bytes"},
		{Email: "dots@example.com", Subject: "Lines that are one dot", Briefing: "first\n.\n..\nFrom here\n.QUIT\nlast"},
		{Email: "boundary@example.com", Subject: "Boundary", Briefing: "--part-000\n\n--part-000--\nContent-Type: text/html"},
		{Email: "crlf@example.com", Subject: "CR LF text", Briefing: "one\r\ntwo\r\n\r\nthree\rfour"},
		{Email: "empty-subject@example.com", Locale: "fr", Subject: "  \t ", Briefing: "Sans objet."},
		{Email: "spaces@example.com", Subject: "  Spaces   around\u00a0 ", Briefing: "   padded   \n\n\n\n   more   "},
		{Email: "markdown@example.com", Subject: "Markdown", Briefing: "# Today\nSome **bold** and ** not bold ** and **open.\n\n---\n\n* one\n* two **strong**\n\n2. two\n3. three\n7) seven\n\n2026. is a year."},
		{Email: "url@example.com", Subject: "A long link", Briefing: "See https://example.com/" + strings.Repeat("path/", 40) + " for more."},
		{Email: "unknown-locale@example.com", Locale: "xx-klingon-!!", Subject: "Odd locale", Briefing: "Short."},
		{Email: "swahili@example.com", Locale: "sw-KE", Subject: "Lugha bila maneno", Briefing: "Habari za asubuhi."},
		{Email: "urdu@example.com", Locale: "ur-PK", Subject: "آج کا خلاصہ", Briefing: "صبح بخیر۔ آج دو ملاقاتیں ہیں۔"},
		{Email: "mixed@example.com", Locale: "ar", Subject: "Invoice 4711 جاهزة", Briefing: "Invoice 4711 is ready.\n\nفاتورتك جاهزة (INV-4711)."},
		{Email: "turkish@example.com", Locale: "tr", Subject: "Bugün iki toplantın var", Briefing: "Günaydın! İlk toplantı 10:00'da."},
		{Email: "polish@example.com", Locale: "pl", Subject: "Dziś dwa spotkania", Briefing: "Dzień dobry! Pierwsze o 10:00."},
		{Email: "russian@example.com", Locale: "ru-RU", Subject: "Сегодня две встречи", Briefing: "Доброе утро! Первая в 10:00."},
		{Email: "korean@example.com", Locale: "ko", Subject: "오늘 회의 두 건", Briefing: "좋은 아침입니다. 첫 회의는 10시입니다."},
		{Email: "taiwan@example.com", Locale: "zh-TW", Subject: "今天有兩個會議", Briefing: "早安。第一個會議在十點。"},
		{Email: "jörg@example.com", Name: "Jörg", Locale: "de", Subject: "Umlaut vor dem @", Briefing: german},
	}
	for i := range rows {
		rows[i].RunID = "run-1"
		rows[i].UserID = fmt.Sprintf("user-%03d", i)
		rows[i].Status = briefing.StatusOK
		rows[i].GeneratedAt = morning
	}
	return rows
}

func rowsOf(rows []briefing.Row) iter.Seq2[briefing.Row, error] {
	return func(yield func(briefing.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func testKeys(t testing.TB, secret string) *UnsubscribeKeys {
	t.Helper()
	keys, err := ParseUnsubscribeKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func testLinks(t testing.TB, template string) *UnsubscribeLinks {
	t.Helper()
	links, err := NewUnsubscribeLinks(template, testKeys(t, "a key of 32 bytes, for tests only"))
	if err != nil {
		t.Fatal(err)
	}
	return links
}

func testComposer(t testing.TB, change func(*Settings)) *Composer {
	t.Helper()
	settings := Settings{
		From:           "Morning Desk <desk@briefings.example>",
		UnsubscribeURL: testLinks(t, "https://briefings.example/u/{token}").URL,
		Now:            func() time.Time { return morning },
	}
	if change != nil {
		change(&settings)
	}
	composer, err := NewComposer(settings)
	if err != nil {
		t.Fatal(err)
	}
	return composer
}
