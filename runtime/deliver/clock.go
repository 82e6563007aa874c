package deliver

import (
	"fmt"
	"time"
)

// Clock is a time of day.
type Clock struct {
	Hour, Minute int
}

// early is how long before its time a delivery is taken for an early one, which
// waits. Before that it is a late one of the day before, which does not.
const early = 12 * time.Hour

// ParseClock reads HH:MM, from 00:00 to 23:59.
func ParseClock(text string) (Clock, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != 5 {
		return Clock{}, fmt.Errorf("%q is no time of day: write it as HH:MM, such as 08:00", text)
	}
	return Clock{t.Hour(), t.Minute()}, nil
}

// String returns the time as HH:MM.
func (c Clock) String() string { return fmt.Sprintf("%02d:%02d", c.Hour, c.Minute) }

// Next returns when a delivery begins that is ready now: at the next such time
// in the location, or now where that is more than 12 hours away, since mail that
// missed its time must not wait for a day.
func (c Clock) Next(now time.Time, location *time.Location) time.Time {
	local := now.In(location)
	for days := range 2 {
		at := time.Date(local.Year(), local.Month(), local.Day()+days, c.Hour, c.Minute, 0, 0, location)
		if wait := at.Sub(now); wait >= 0 && wait <= early {
			return at
		}
	}
	return now
}
