// Package gather keeps finished rows: it is where a swarm's results come
// together. ParquetDir is the local sink; rows read back the same from any
// Parquet reader.
package gather
