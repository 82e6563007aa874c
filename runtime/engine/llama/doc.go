// Package llama runs models with llama.cpp, in process and without cgo.
//
// The shared libraries are found at run time and picked by processor: ggml
// loads the best of the CPU variants that lie beside libllama.so.
package llama
