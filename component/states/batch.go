package states

// Names of the states that a batch goes through. The second task is the first
// one again, with the list of what is left.
const (
	workState    = "Work"
	leftState    = "Anything left"
	restState    = "Work on the rest"
	movedState   = "Any progress"
	goOnState    = "Go on"
	batchState   = "Batch done"
	restDone     = "Rest done"
	stalledState = "Stalled"
)

// batch is what runs for each batch of a map: the function is called with the
// batch, and again with the places it has left, until none are. A call that
// does none of them ends the batch, so that no child goes round for ever. What
// remains of a child is the receipt of its last call.
func (p partition) batch(function string, timeoutSec int, retry ...Retry) ItemProcessor {
	receipt := Template{"receipt.$": "$.Payload"}
	first := p.call(function, timeoutSec, Path("$"), retry...)
	first.ResultSelector, first.ResultPath, first.Next = receipt, "$.last", leftState
	rest := p.call(function, timeoutSec, Template{
		"BatchInput.$": "$.BatchInput", "Items.$": "$.Items", "remaining.$": "$.last.receipt.remaining",
	}, retry...)
	rest.ResultSelector, rest.ResultPath, rest.Next = receipt, "$.next", movedState
	return ItemProcessor{
		ProcessorConfig: ProcessorConfig{Mode: "DISTRIBUTED", ExecutionType: "STANDARD"},
		StartAt:         workState,
		States: map[string]State{
			workState: first,
			leftState: Choice{
				Choices: []Rule{{Variable: "$.last.receipt.remaining_items", NumericEquals: new(0.0), Next: batchState}},
				Default: restState,
			},
			restState: rest,
			movedState: Choice{
				Choices: []Rule{
					{Variable: "$.next.receipt.remaining_items", NumericEquals: new(0.0), Next: restDone},
					{Variable: "$.next.receipt.remaining_items", NumericLessThanPath: "$.last.receipt.remaining_items", Next: goOnState},
				},
				Default: stalledState,
			},
			goOnState:  Pass{InputPath: "$.next", ResultPath: "$.last", Next: restState},
			batchState: Succeed{InputPath: "$.last.receipt"},
			restDone:   Succeed{InputPath: "$.next.receipt"},
			stalledState: Fail{
				Error: "StalledError", Cause: "a call of the function has done none of the items that were left: is its timeout too short for one item?",
			},
		},
	}
}

// results keeps the receipts of all children of a map as JSON Lines, below a
// prefix that is a format for the execution's name. It takes nothing from the
// state's input: interpreters differ in what they evaluate its template against.
func (p partition) results(bucket, prefix string) ResultWriter {
	return ResultWriter{
		Resource:     p.resource(putObject),
		Parameters:   Template{"Bucket": bucket, "Prefix.$": "States.Format('" + prefix + "', $$.Execution.Name)"},
		WriterConfig: WriterConfig{OutputType: "JSONL", Transformation: "COMPACT"},
	}
}
