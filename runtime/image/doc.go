// Package image stages the folder that the worker image is built from, out of
// the sources embedded in this module, so that it can be built wherever the
// deploying program runs: there need be no checkout. The same sources, model and
// options give the same folder, byte for byte and with the same times and modes,
// under a name made of its content: a second preview then shows no change.
package image
