// Package stream answers single chats as they are written, in the form of
// OpenAI's chat completions: behind a Lambda Function URL, or any HTTP server.
package stream
