// Package object reads and writes S3 objects as streams of any length in a
// bounded amount of memory, over connections that break.
package object
