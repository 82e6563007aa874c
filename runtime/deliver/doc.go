// Package deliver turns the rows of a run into mail: one message for every row
// that is ok and has an address, never two.
//
// A Composer writes the Message, a Sender hands it over (SES, SMTP, .eml files),
// and a Ledger remembers who was sent what (in a file or in DynamoDB). Deliver
// runs the three over any number of rows at a memory that does not grow with
// them. The order for each user is claim, compose, send, confirm: a process that
// dies between claim and confirm leaves a claim without confirmation, which means
// that nobody knows whether the mail left. Such a user is counted as unknown and
// never mailed again by itself.
//
// No error of this package holds an address, a name or a text.
package deliver
