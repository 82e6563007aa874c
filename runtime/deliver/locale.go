package deliver

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
)

// phrases are the few words and the date that a mail carries beside the
// briefing itself, in one language.
type phrases struct {
	// date is a pattern: W weekday, D day, M month, Y year; the rest stands
	// for itself.
	date        string
	weekdays    string // from Sunday, space-separated (a ~ stands for a space)
	months      string // from January, in the form that goes with a day; "" for numbers
	yourDay     string // the subject when the briefing has none
	why         string // why the reader got this mail, %s is the sender
	unsubscribe string
}

// languages holds the languages this package knows, by their base and, where
// one language is written in two ways, base and script. golang.org/x/text has
// no date formats, and a library with all of CLDR weighs more than the program.
// Date forms follow CLDR's full dates.
var languages = map[string]phrases{
	"en": {
		"W D M Y",
		"Sunday Monday Tuesday Wednesday Thursday Friday Saturday",
		"January February March April May June July August September October November December",
		"Your briefing",
		"You get this mail because you signed up for briefings from %s.",
		"Unsubscribe",
	},
	"de": {
		"W, D. M Y",
		"Sonntag Montag Dienstag Mittwoch Donnerstag Freitag Samstag",
		"Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
		"Ihr Briefing",
		"Sie erhalten diese E-Mail, weil Sie Briefings von %s abonniert haben.",
		"Abbestellen",
	},
	"fr": {
		"W D M Y",
		"dimanche lundi mardi mercredi jeudi vendredi samedi",
		"janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
		"Votre briefing",
		"Vous recevez cet e-mail car vous êtes abonné aux briefings de %s.",
		"Se désabonner",
	},
	"es": {
		"W, D de M de Y",
		"domingo lunes martes miércoles jueves viernes sábado",
		"enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
		"Tu resumen",
		"Recibes este correo porque te suscribiste a los resúmenes de %s.",
		"Darse de baja",
	},
	"it": {
		"W D M Y",
		"domenica lunedì martedì mercoledì giovedì venerdì sabato",
		"gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
		"Il tuo briefing",
		"Ricevi questa email perché hai attivato i briefing di %s.",
		"Annulla l'iscrizione",
	},
	"pt": {
		"W, D de M de Y",
		"domingo segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado",
		"janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
		"Seu resumo",
		"Você recebe este e-mail porque assinou os resumos de %s.",
		"Cancelar inscrição",
	},
	"nl": {
		"W D M Y",
		"zondag maandag dinsdag woensdag donderdag vrijdag zaterdag",
		"januari februari maart april mei juni juli augustus september oktober november december",
		"Je briefing",
		"Je krijgt deze e-mail omdat je je hebt aangemeld voor briefings van %s.",
		"Afmelden",
	},
	"pl": {
		"W, D M Y",
		"niedziela poniedziałek wtorek środa czwartek piątek sobota",
		"stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
		"Twoje podsumowanie",
		"Otrzymujesz tę wiadomość, ponieważ zapisano Cię na podsumowania od %s.",
		"Wypisz się",
	},
	"sv": {
		"W D M Y",
		"söndag måndag tisdag onsdag torsdag fredag lördag",
		"januari februari mars april maj juni juli augusti september oktober november december",
		"Din sammanfattning",
		"Du får det här mejlet eftersom du prenumererar på sammanfattningar från %s.",
		"Avsluta prenumerationen",
	},
	"tr": {
		"D M Y W",
		"Pazar Pazartesi Salı Çarşamba Perşembe Cuma Cumartesi",
		"Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",
		"Günlük özetiniz",
		"Bu e-postayı %s özetlerine abone olduğunuz için alıyorsunuz.",
		"Abonelikten çık",
	},
	"ru": {
		"W, D M Y г.",
		"воскресенье понедельник вторник среда четверг пятница суббота",
		"января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
		"Ваша сводка",
		"Вы получили это письмо, потому что подписаны на сводки от %s.",
		"Отписаться",
	},
	"uk": {
		"W, D M Y р.",
		"неділя понеділок вівторок середа четвер пʼятниця субота",
		"січня лютого березня квітня травня червня липня серпня вересня жовтня листопада грудня",
		"Ваш огляд",
		"Ви отримали цей лист, бо підписані на огляди від %s.",
		"Відписатися",
	},
	"ar": {
		"W، D M Y",
		"الأحد الاثنين الثلاثاء الأربعاء الخميس الجمعة السبت",
		"يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
		"موجزك اليومي",
		"تصلك هذه الرسالة لأنك مشترك في موجزات %s.",
		"إلغاء الاشتراك",
	},
	"he": {
		"W, D בM Y",
		"יום~ראשון יום~שני יום~שלישי יום~רביעי יום~חמישי יום~שישי יום~שבת",
		"ינואר פברואר מרץ אפריל מאי יוני יולי אוגוסט ספטמבר אוקטובר נובמבר דצמבר",
		"התקציר שלך",
		"קיבלת הודעה זו כי נרשמת לתקצירים של %s.",
		"הסרה מהרשימה",
	},
	"hi": {
		"W, D M Y",
		"रविवार सोमवार मंगलवार बुधवार गुरुवार शुक्रवार शनिवार",
		"जनवरी फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर अक्टूबर नवंबर दिसंबर",
		"आपका सारांश",
		"आपको यह ईमेल इसलिए मिला क्योंकि आपने %s के सारांश की सदस्यता ली है।",
		"सदस्यता छोड़ें",
	},
	"ja": {
		"Y年M月D日W",
		"日曜日 月曜日 火曜日 水曜日 木曜日 金曜日 土曜日",
		"",
		"本日のブリーフィング",
		"このメールは、%sのブリーフィングにご登録いただいた方にお送りしています。",
		"配信停止",
	},
	"ko": {
		"Y년 M월 D일 W",
		"일요일 월요일 화요일 수요일 목요일 금요일 토요일",
		"",
		"오늘의 브리핑",
		"%s의 브리핑을 구독하셔서 이 메일을 보내드립니다.",
		"수신 거부",
	},
	"zh": {
		"Y年M月D日W",
		"星期日 星期一 星期二 星期三 星期四 星期五 星期六",
		"",
		"您的简报",
		"您收到此邮件,是因为您订阅了 %s 的简报。",
		"退订",
	},
	"zh-Hant": {
		"Y年M月D日 W",
		"星期日 星期一 星期二 星期三 星期四 星期五 星期六",
		"",
		"您的簡報",
		"您收到此郵件,是因為您訂閱了 %s 的簡報。",
		"取消訂閱",
	},
}

// locale is what a mail needs to know of a reader's language.
type locale struct {
	tag     string // BCP 47, for the lang attribute
	dir     string // ltr or rtl
	date    string // pattern; "" for ISO 8601
	phrases phrases
}

// lookupLocale reads a BCP 47 tag, also in the form de_DE. What it cannot read
// gives the fallback. A language without an entry keeps its tag and its
// direction, with an ISO date and English words.
func lookupLocale(text, fallback string) locale {
	tag, err := language.Parse(strings.TrimSpace(text))
	if err != nil || tag == language.Und {
		if text == fallback {
			tag = language.English
		} else {
			return lookupLocale(fallback, fallback)
		}
	}
	found := locale{tag: tag.String(), dir: "ltr"}
	base, _ := tag.Base()
	script, _ := tag.Script()
	switch script.String() {
	case "Arab", "Hebr", "Syrc", "Thaa", "Nkoo", "Adlm", "Rohg":
		found.dir = "rtl"
	}
	words, ok := languages[base.String()+"-"+script.String()]
	if !ok {
		words, ok = languages[base.String()]
	}
	if !ok {
		found.phrases = languages["en"]
		return found
	}
	found.phrases, found.date = words, words.date
	if region, _ := tag.Region(); base.String() == "en" {
		switch region.String() {
		case "US", "CA", "PH":
			found.date = "W, M D, Y"
		}
	}
	return found
}

// formatDate writes the day in the words of the locale.
func (l locale) formatDate(t time.Time) string {
	if l.date == "" {
		return t.Format(time.DateOnly)
	}
	month := strconv.Itoa(int(t.Month()))
	if l.phrases.months != "" {
		month = strings.Fields(l.phrases.months)[t.Month()-1]
	}
	weekday := strings.ReplaceAll(strings.Fields(l.phrases.weekdays)[t.Weekday()], "~", " ")
	var b strings.Builder
	for _, r := range l.date {
		switch r {
		case 'W':
			b.WriteString(weekday)
		case 'D':
			b.WriteString(strconv.Itoa(t.Day()))
		case 'M':
			b.WriteString(month)
		case 'Y':
			b.WriteString(strconv.Itoa(t.Year()))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
