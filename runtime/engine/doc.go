// Package engine turns prompts into text with a language model, many at a
// time.
//
// It decodes the prefix that all prompts share once, runs up to K sequences
// together (continuous batching with chunked prefill), replaces a finished
// sequence at once, generates identical greedy prompts once, and bounds
// everything: tokens, context, wall clock. The model itself is behind the
// Backend interface; package llama implements it with llama.cpp and package
// fake with a deterministic stand-in.
package engine
