// Package source holds the sources of what runs inside Lambda, to build the image
// from wherever the program runs that deploys it. See package image.
package source

import "embed"

// Files are the folder runtime/, with its Dockerfile, its tests and this file.
//
//go:embed *
var Files embed.FS
