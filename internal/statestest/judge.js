// Prints what AWS's language service and asl-validator say of state machines:
// reads a JSON list of documents, writes a JSON list of lists of lines.
"use strict";

const fs = require("fs");
const { getLanguageService } = require("amazon-states-language-service");
const { TextDocument } = require("vscode-languageserver-textdocument");
const validate = require("asl-validator");

async function judge(text) {
  const service = getLanguageService({});
  const document = TextDocument.create("machine.asl.json", "asl", 1, text);
  const said = await service.doValidation(document, service.parseJSONDocument(document));
  const lines = said.map((d) => `language service: line ${d.range.start.line + 1}: ${d.message}`);
  const { isValid, errors } = validate(JSON.parse(text), { checkPaths: true, checkArn: true });
  if (!isValid) {
    for (const e of errors) {
      lines.push(`asl-validator: ${e["Error code"]}: ${e.path ?? e.instancePath ?? ""} ${e.Message ?? e.message ?? JSON.stringify(e)}`);
    }
  }
  return lines;
}

Promise.all(JSON.parse(fs.readFileSync(process.argv[2], "utf8")).map(judge)).then((all) => {
  process.stdout.write(JSON.stringify(all));
});
