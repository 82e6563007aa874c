// Package dockertest runs a Docker daemon of its own for tests: a private socket
// and data folder, no network of its own, and a registry on the loopback
// address. Container images are made from root file systems, so that nothing is
// pulled. It needs Linux, root, and Debian's docker.io and docker-registry.
package dockertest
