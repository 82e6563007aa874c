//go:build !unix

package deliver

// cpuSeconds is not known here.
func cpuSeconds() float64 { return 0 }
