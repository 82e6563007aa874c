package report

import "github.com/briefing-swarm/briefing-swarm/runtime/briefing"

// meanings explain, to somebody who has never seen the code, what happened to a
// row and what to do about it.
var meanings = map[string]string{
	briefing.CodeFileEmpty:        "The input file is empty. Check the export that writes it.",
	briefing.CodeFileNotText:      "The input is not a text file, but a workbook, an archive or Parquet. Export it as CSV or JSON Lines.",
	briefing.CodeFileUTF16:        "The input is UTF-16 or UTF-32. Save it as UTF-8.",
	briefing.CodeHeaderOnly:       "The CSV file has a header and no rows below it.",
	briefing.CodeHeaderTooLarge:   "The CSV header is too long to be one. Check that the first line names the columns.",
	briefing.CodeHeaderNoUserID:   "The CSV header has no user_id column. Name the column of the unique ids user_id.",
	briefing.CodeHeaderEmpty:      "A column of the CSV header has no name. Give it one, or remove the column.",
	briefing.CodeHeaderDuplicate:  "Two columns of the CSV header have the same name. Rename one of them.",
	briefing.CodeHeaderLineEnds:   "The lines of the file end in carriage returns alone. Save it with LF or CRLF line ends.",
	briefing.CodeRecordTooLarge:   "The record is larger than 64 KiB. Shorten its fields.",
	briefing.CodeInvalidUTF8:      "The row holds bytes that are not UTF-8. Save the file as UTF-8.",
	briefing.CodeNUL:              "The row holds a NUL byte, which no text has. Check the export that writes the file.",
	briefing.CodeColumnsMissing:   "The row has fewer columns than the header. Often a line break that should be in quotes.",
	briefing.CodeColumnsExtra:     "The row has more columns than the header. Often a comma that should be in quotes.",
	briefing.CodeQuoteStray:       "A quote stands where CSV allows none. Put the whole field in quotes and double the quotes inside.",
	briefing.CodeQuoteOpen:        "A quote is opened and never closed. The file may be cut short.",
	briefing.CodeJSONSyntax:       "The line is not valid JSON. The file may be cut short, or one record spans several lines.",
	briefing.CodeJSONNotObject:    "The line is valid JSON, but not an object. Write one object with a user_id on each line.",
	briefing.CodeJSONDuplicateKey: "The object has the same key twice, so that one value would be lost.",
	briefing.CodeJSONEmptyKey:     "The object has a key without a name.",
	briefing.CodeJSONTooDeep:      "The object is nested too deeply. Flatten it.",
	briefing.CodeJSONSurrogate:    "A string holds half of a character pair (a lone surrogate), which cannot be written as UTF-8.",
	briefing.CodeFieldType:        "A field that is read as text holds something else. Make email, name and locale strings.",
	briefing.CodeUserIDMissing:    "The row has no user_id. Every user needs one.",
	briefing.CodeUserIDType:       "The user_id is neither a string nor a number.",
	briefing.CodeUserIDSpaces:     "The user_id begins or ends with a space. Trim it, so that it matches your own data later.",
	briefing.CodeUserIDControl:    "The user_id holds a control character.",
	briefing.CodeUserIDTooLong:    "The user_id is too long to be an id.",
	briefing.CodeUserIDDuplicate:  "Another row has the same user_id. The first one is kept.",
	briefing.CodeEmailInvalid:     "The e-mail address is none. Correct it, or leave it empty to write the briefing without a mail.",
	briefing.CodeTemplateFailed:   "The user template does not fit this record, for example because it asks for a field the record lacks.",
	briefing.CodeTemplateEndless:  "The user template did not come to an end on this record. Bound its loops.",
	briefing.CodePromptTooLarge:   "The prompt made from this record is too large. Shorten fields in the template, or leave some out.",
	briefing.CodePromptEmpty:      "The user template writes nothing for this record. Give it some text that every user gets.",

	// Of packages recipe and generate, whose callers write the report.
	"prompt_too_long": "The prompt has more tokens than one sequence may take. Shorten the record or the template, or lower the output tokens asked for.",
	"engine_error":    "The engine failed on this user. Run the failed users once more; error_message names the cause.",
	"deadline":        "The text took longer than a whole invocation. Lower the output tokens, or raise the function's memory or timeout.",
	"message_invalid": "The queue message holds no request. Its reason is beside it in the dead-letter queue.",
	"empty_text":      "The model wrote nothing for this user. Run the failed users once more, or ask for more in the prompt.",
}

// finishes name the finish reasons in words.
var finishes = map[string]string{
	briefing.FinishStop:     "Complete",
	briefing.FinishLength:   "Cut: token limit",
	briefing.FinishDeadline: "Cut: deadline",
}

const unexplained = "No explanation is known for this code. The error_message column of the Parquet rows, and rejects.jsonl, say more."

// meaning explains a code, by what the run said about it or by what is known.
func (c Count) meaning() string {
	if c.About != "" {
		return c.About
	}
	if known, ok := meanings[c.Label]; ok {
		return known
	}
	return unexplained
}
