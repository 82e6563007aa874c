package plan

// Limits of the AWS services. Each was read in a public copy of the AWS
// documentation on 2026-11-30; Quotas reports where, and how sure that is.
const (
	MibPerVCPU              = 1769        // Lambda memory that buys one vCPU
	LambdaMemoryMinMib      = 128         //
	LambdaMemoryMaxMib      = 10240       //
	LambdaTimeoutMaxSec     = 900         //
	LambdaInitMaxSec        = 10          // INIT is started again after that
	LambdaTmpMinMib         = 512         // free
	LambdaTmpMaxMib         = 10240       //
	LambdaImageMaxBytes     = 10 << 30    // uncompressed
	LambdaNewEnvPer10Sec    = 1000        // new environments per function
	LambdaBandwidthBitsSec  = 625_000_000 // network of one environment
	LambdaConcurrencyUnset  = 1000        // an account that has asked for nothing
	MapConcurrencyMax       = 10_000      //
	MapItemsMax             = 100_000_000 //
	MapFileMaxBytes         = 10e9        //
	StandardStartsPerSec    = 100         // children of a Distributed Map
	ExpressStartsPerSec     = 1000        //
	ChildInputMaxBytes      = 262_144     // 256 KiB
	ExpressMaxSec           = 300         //
	RecordMaxBytes          = 64 << 10    // our own input contract
	FirehoseRoundingBytes   = 5120        // every record is billed in steps
	FirehoseRecordMaxBytes  = 1000 << 10  //
	FirehoseBatchMaxRecords = 500         //
	FirehoseBufferMinMib    = 64          // with format conversion
	FirehoseBufferMaxMib    = 128         //
	FirehoseBufferMinSec    = 60          //
	FirehoseBufferMaxSec    = 900         //
	EFSReadMaxBytesSec      = 60 << 30    // one regional file system, elastic
	EFSConnectionsMax       = 25_000      //
	SesSandboxPerSec        = 1           // an account that has asked for nothing
	SesSandboxPer24Hours    = 200         //
	SesShare                = 0.9         // delivery keeps to this part of the quota
)

// startsPerSec is the rate at which a Distributed Map starts children.
func startsPerSec(childType string) float64 {
	if childType == Express {
		return ExpressStartsPerSec
	}
	return StandardStartsPerSec
}

// regionLimits are the defaults that differ by region.
type regionLimits struct {
	SfnTransitionsPerSec   float64
	FirehoseMibPerSec      float64
	FirehoseRequestsPerSec float64
	FirehoseRecordsPerSec  float64
	Known                  bool
}

// limitsOf returns a region's defaults. A region that is not in the table gets
// the lower row, and Known is false.
func limitsOf(region string) regionLimits {
	switch region {
	case "us-east-1", "us-west-2", "eu-west-1":
		return regionLimits{5000, 5, 2000, 500_000, true}
	case "eu-central-1", "ap-southeast-1":
		return regionLimits{800, 1, 1000, 100_000, true}
	}
	return regionLimits{800, 1, 1000, 100_000, false}
}

// FetchSec is how long one environment needs for so many bytes at Lambda's
// 625 Mbps. Whether that also bounds the lazy loading of images is not known.
func FetchSec(bytes int64) float64 { return float64(bytes) * 8 / LambdaBandwidthBitsSec }

// WaveUsers is how many users one wave of full batches serves: maxConcurrency
// workers with batchSize users each.
func WaveUsers(maxConcurrency, batchSize int) int64 {
	return int64(maxConcurrency) * int64(batchSize)
}

// MaxBatchBySec is the largest batch that ends within limitSec when a user
// takes secPerUser and the worker first needs startSec; 0 if none does.
func MaxBatchBySec(limitSec, startSec, secPerUser float64) int {
	if secPerUser <= 0 {
		return maxBatch
	}
	return int(max(0, min(maxBatch, (limitSec-startSec)/secPerUser)))
}

// childSharedBytes is what is left of a child's input for what all its records
// share, and for what a call's answer adds to it on the way round.
const childSharedBytes = 8 << 10

// MaxBatchByBytes is the largest batch of such records that fits in a child's
// input beside childSharedBytes.
func MaxBatchByBytes(recordBytes int) int {
	if recordBytes <= 0 {
		return maxBatch
	}
	return min(maxBatch, (ChildInputMaxBytes-childSharedBytes)/recordBytes)
}

// maxBatch bounds BatchSize; a batch that large never ends in time anyway.
const maxBatch = 10_000
