package statestest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// inBatches is in the keys by which a runnable machine reads its items.
const inBatches = ".in-batches-of-"

// runnable changes a document where LocalStack's interpreter lacks something, and
// nowhere else. In each Distributed Map
//
//   - the reader's JSONL or PARQUET becomes JSON, and ItemBatcher an ItemSelector
//     that builds the same input for a child: {"BatchInput": …, "Items": […]}.
//     The account cuts the items of the object into batches when the interpreter
//     reads them, by rows alone: bytes are not counted;
//   - the WriterConfig of the ResultWriter is left out;
//   - ToleratedFailurePercentage has a decimal point, which its grammar wants and
//     AWS's does not.
func runnable(document string) (string, error) {
	var machine struct {
		Comment        string `json:",omitempty"`
		StartAt        string
		TimeoutSeconds int `json:",omitempty"`
		States         map[string]map[string]any
	}
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	if err := decoder.Decode(&machine); err != nil {
		return "", err
	}
	changed := 0
	for name, state := range machine.States {
		if state["Type"] != "Map" {
			continue
		}
		if err := runnableMap(state); err != nil {
			return "", fmt.Errorf("state %s: %w", name, err)
		}
		changed++
	}
	if changed == 0 {
		return "", errors.New("the machine has no Map to make runnable")
	}
	text, err := json.Marshal(machine)
	return string(text), err
}

func runnableMap(state map[string]any) error {
	reader, _ := state["ItemReader"].(map[string]any)
	config, _ := reader["ReaderConfig"].(map[string]any)
	parameters, _ := reader["Parameters"].(map[string]any)
	batcher, _ := state["ItemBatcher"].(map[string]any)
	writer, _ := state["ResultWriter"].(map[string]any)
	key, _ := parameters["Key.$"].(string)
	if key == "" || batcher == nil || writer == nil || config["InputType"] != "JSONL" && config["InputType"] != "PARQUET" {
		return errors.New("it is no Distributed Map over an object, in batches, with a ResultWriter")
	}
	if path, ok := batcher["MaxItemsPerBatchPath"]; ok {
		parameters["Key.$"] = fmt.Sprintf("States.Format('{}%s{}', %s, %s)", inBatches, key, path)
	} else {
		parameters["Key.$"] = fmt.Sprintf("States.Format('{}%s%s', %s)", inBatches, batcher["MaxItemsPerBatch"], key)
	}
	config["InputType"] = "JSON"
	state["ItemSelector"] = map[string]any{"BatchInput": batcher["BatchInput"], "Items.$": "$$.Map.Item.Value"}
	delete(state, "ItemBatcher")
	delete(writer, "WriterConfig")
	state["ToleratedFailurePercentage"] = json.Number(fmt.Sprint(state["ToleratedFailurePercentage"], ".0"))
	return nil
}

// batches answers the read of an object in batches: a JSON list of lists.
func (a *Account) batches(w http.ResponseWriter, r *http.Request) {
	path, count, _ := strings.Cut(r.URL.Path, inBatches)
	size, err := strconv.Atoi(count)
	if err != nil || size < 1 {
		http.Error(w, "no size of a batch", http.StatusBadRequest)
		return
	}
	get, err := http.NewRequestWithContext(r.Context(), http.MethodGet, a.other.JoinPath(path).String(), nil)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// The other wants to see who is calling; it does not check the signature.
	get.Header = r.Header.Clone()
	response, err := http.DefaultClient.Do(get)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close() // it is read to its end
	body, err := io.ReadAll(response.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if response.StatusCode != http.StatusOK {
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.StatusCode)
		w.Write(body)
		return
	}
	items, err := readItems(path, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	all := [][]json.RawMessage{}
	for ; len(items) > 0; items = items[min(size, len(items)):] {
		all = append(all, items[:min(size, len(items))])
	}
	answer(w, http.StatusOK, "application/json", all)
}

func readItems(path string, body []byte) (items []json.RawMessage, err error) {
	if strings.HasSuffix(path, ".parquet") {
		reader := parquet.NewReader(bytes.NewReader(body))
		for {
			row := map[string]any{}
			if err := reader.Read(&row); errors.Is(err, io.EOF) {
				return items, nil
			} else if err != nil {
				return nil, err
			}
			item, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !json.Valid(lines.Bytes()) {
			return nil, fmt.Errorf("line %d is no JSON", len(items)+1)
		}
		items = append(items, bytes.Clone(lines.Bytes()))
	}
	return items, lines.Err()
}
