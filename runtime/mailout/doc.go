// Package mailout is delivery inside Lambda: when and how fast a Parquet file of
// briefings is mailed, the mails of one batch of it, the one-click unsubscribe,
// and what SES reports back. The mails themselves are package deliver's.
package mailout
