package deliver

import (
	"testing"
	"time"
	_ "time/tzdata"
)

func TestParseClock(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"08:00": "08:00", "00:00": "00:00", "23:59": "23:59"} {
		if c, err := ParseClock(text); err != nil || c.String() != want {
			t.Errorf("%q: %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "8", "8:00", "24:00", "08:60", "08:00:00", "8:00 am", "-1:00", " 8:00", "٠٨:٠٠"} {
		if c, err := ParseClock(text); err == nil {
			t.Errorf("%q is taken for %v", text, c)
		}
	}
}

func TestClockNext(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02 15:04 MST"
	for _, tc := range []struct {
		name, zone, at, now, want string
	}{
		{"ten minutes early", "UTC", "08:00", "2026-11-30 07:50 UTC", "2026-11-30 08:00 UTC"},
		{"on time", "UTC", "08:00", "2026-11-30 08:00 UTC", "2026-11-30 08:00 UTC"},
		{"ten minutes late", "UTC", "08:00", "2026-11-30 08:10 UTC", "2026-11-30 08:10 UTC"},
		{"the evening before", "UTC", "08:00", "2026-11-30 20:30 UTC", "2026-12-01 08:00 UTC"},
		{"twelve hours early", "UTC", "08:00", "2026-11-30 20:00 UTC", "2026-12-01 08:00 UTC"},
		{"late in the afternoon", "UTC", "08:00", "2026-11-30 19:59 UTC", "2026-11-30 19:59 UTC"},
		{"just after midnight", "UTC", "00:30", "2026-11-30 23:50 UTC", "2026-12-01 00:30 UTC"},
		{"east", "Asia/Tokyo", "08:00", "2026-11-30 22:50 UTC", "2026-12-01 08:00 JST"},
		{"west", "America/Los_Angeles", "08:00", "2026-11-30 15:50 UTC", "2026-11-30 08:00 PST"},
		{"the night the clocks go forward", "Europe/Berlin", "08:00", "2026-03-29 00:30 UTC", "2026-03-29 08:00 CEST"},
		{"the night they go back", "Europe/Berlin", "08:00", "2026-10-25 00:30 UTC", "2026-10-25 08:00 CET"},
		{"a time that the night leaves out", "Europe/Berlin", "02:30", "2026-03-29 00:00 UTC", "2026-03-29 03:30 CEST"},
	} {
		location, err := time.LoadLocation(tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ParseClock(tc.at)
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(layout, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Next(now, location).Format(layout); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
