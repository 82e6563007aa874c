// Package model knows the files a swarm generates with: it reads and checks
// GGUF files, says how much memory one needs, keeps a catalogue of open
// models with where to get them, fetches them, and writes files of random
// weights in a real model's shape, so that speed can be measured without the
// weights.
//
// The package uses the standard library only: the component that plans a
// deployment imports it as well as the engine that runs one.
package model
