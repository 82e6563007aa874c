// Package libffi makes a missing libffi a line that says what to do. The binding
// to llama.cpp loads it while the program starts, before main, and panics where
// it can't. This package is initialized before the binding: Go initializes
// packages in the order of their paths once their imports are, and this one
// imports no package that the binding does not. A test starts a program without
// libffi to hold that.
package libffi
