package model

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
)

// minScale is the smallest scale a block may have. A 16-bit float below
// 6.1e-5 is subnormal, and kernels that flush subnormals to zero turn the
// whole block, and with it the model's logits, into zeros.
const minScale = 6.2e-5

// float16 encodes v, which must lie in the normal range of a 16-bit float.
func float16(v float64) uint16 {
	if v < minScale || v > 65000 {
		panic(fmt.Sprintf("a block scale of %g does not fit a normal 16-bit float", v))
	}
	fraction, exp := math.Frexp(v) // v = fraction x 2^exp, fraction in [0.5, 1)
	mantissa := math.Round((2*fraction - 1) * 1024)
	exp--
	if mantissa == 1024 {
		exp, mantissa = exp+1, 0
	}
	return uint16(exp+15)<<10 | uint16(mantissa)
}

// blockKind describes how the blocks of one tensor type are made up: filled
// from random bytes once, then given a new scale each time they are used, so
// that no two rows of a tensor are alike although the pool is small.
type blockKind struct {
	// body writes the quantized values of one block, and inner scales if the
	// type has them.
	body func(rng *rand.Rand, block []byte)
	// scale writes the block's 16-bit scales, which are at scaleAt, for values
	// of standard deviation sigma times factor.
	scale   func(block []byte, sigma, factor float64)
	scaleAt span
}

// normal draws a whole number around mean, within [low, high]. The conversion
// keeps compilers from fusing product and sum, which would give other numbers
// on other processors.
func normal(rng *rand.Rand, mean, deviation float64, low, high int) int {
	return min(max(int(math.Round(mean+float64(deviation*rng.NormFloat64()))), low), high)
}

// packNibbles fills dst with pairs of 4-bit values.
func packNibbles(rng *rand.Rand, dst []byte, mean, deviation float64) {
	for i := range dst {
		dst[i] = byte(normal(rng, mean, deviation, 0, 15) | normal(rng, mean, deviation, 0, 15)<<4)
	}
}

func putScale(dst []byte, v float64) { binary.LittleEndian.PutUint16(dst, float16(v)) }

// Deviations of the quantized values, in steps. They use the range of the
// type about as real weights do.
const (
	deviation4 = 2.7
	deviation5 = 5.0
	deviation6 = 10.0
	deviation8 = 40.0
	// innerScale is the mean of the inner scales of the K types.
	innerScale4 = 48
	innerScale6 = 16
)

var blockKinds = map[TensorType]blockKind{
	// Q4_0: scale, 32 nibbles; value = scale x (nibble - 8).
	TypeQ4_0: {
		scaleAt: span{0, 2},
		body:    func(rng *rand.Rand, b []byte) { packNibbles(rng, b[2:18], 8, deviation4) },
		scale:   func(b []byte, sigma, f float64) { putScale(b, sigma*f/deviation4) },
	},
	// Q5_0: scale, 32 fifth bits, 32 nibbles; value = scale x (n - 16).
	TypeQ5_0: {
		scaleAt: span{0, 2},
		body: func(rng *rand.Rand, b []byte) {
			var high uint32
			for i := range 16 {
				lo, hi := normal(rng, 16, deviation5, 0, 31), normal(rng, 16, deviation5, 0, 31)
				b[6+i] = byte(lo&15 | hi&15<<4)
				high |= uint32(lo>>4)<<i | uint32(hi>>4)<<(i+16)
			}
			binary.LittleEndian.PutUint32(b[2:], high)
		},
		scale: func(b []byte, sigma, f float64) { putScale(b, sigma*f/deviation5) },
	},
	// Q8_0: scale, 32 signed bytes.
	TypeQ8_0: {
		scaleAt: span{0, 2},
		body: func(rng *rand.Rand, b []byte) {
			for i := range 32 {
				b[2+i] = byte(int8(normal(rng, 0, deviation8, -127, 127)))
			}
		},
		scale: func(b []byte, sigma, f float64) { putScale(b, sigma*f/deviation8) },
	},
	// Q4_K: scale and scale of the minimum, 8 pairs of 6-bit inner scales and
	// minima in 12 bytes, 256 nibbles; value = d x sc x n - dmin x m. With
	// m = sc and dmin = 7.5 d the values lie around 0.
	TypeQ4_K: {
		scaleAt: span{0, 4},
		body: func(rng *rand.Rand, b []byte) {
			var sc [8]byte
			for i := range sc {
				sc[i] = byte(normal(rng, innerScale4, 6, 32, 63))
			}
			packScaleMin(b[4:16], sc, sc)
			packNibbles(rng, b[16:144], 7.5, deviation4)
		},
		scale: func(b []byte, sigma, f float64) {
			d := sigma * f / deviation4 / innerScale4
			putScale(b, d)
			putScale(b[2:], 7.5*d)
		},
	},
	// Q6_K: 256 low nibbles, 256 high bit pairs, 16 signed inner scales, scale
	// at the end; value = d x sc x (n - 32).
	TypeQ6_K: {
		scaleAt: span{208, 210},
		body: func(rng *rand.Rand, b []byte) {
			for half := range 2 {
				low, high := b[64*half:64*half+64], b[128+32*half:128+32*half+32]
				for i := range 32 {
					var n [4]int
					for j := range n {
						n[j] = normal(rng, 32, deviation6, 0, 63)
					}
					low[i] = byte(n[0]&15 | n[2]&15<<4)
					low[i+32] = byte(n[1]&15 | n[3]&15<<4)
					high[i] = byte(n[0]>>4 | n[1]>>4<<2 | n[2]>>4<<4 | n[3]>>4<<6)
				}
			}
			for i := range 16 {
				b[192+i] = byte(int8(normal(rng, innerScale6, 2, 10, 24)))
			}
		},
		scale: func(b []byte, sigma, f float64) { putScale(b[208:], sigma*f/deviation6/innerScale6) },
	},
}

// packScaleMin packs eight 6-bit scales and eight 6-bit minima into 12 bytes
// the way the K types store them: the first four of each as they are, the low
// nibbles of the last four together, and their upper two bits in the spare
// bits of the first eight bytes.
func packScaleMin(dst []byte, scales, minima [8]byte) {
	for j := range 4 {
		dst[j] = scales[j]&63 | scales[j+4]>>4<<6
		dst[j+4] = minima[j]&63 | minima[j+4]>>4<<6
		dst[j+8] = scales[j+4]&15 | minima[j+4]&15<<4
	}
}

// poolBlocks is the number of blocks made for each type: a prime, so that
// rows do not fall into step with the pool. scaleSteps is the number of
// different scales a block can get each time.
const (
	poolBlocks = 4093
	scaleSteps = 1 << 10
)

// weightWriter writes random weights in whole blocks from pools it makes on
// first use.
type weightWriter struct {
	seed  uint64
	sigma float64
	pools map[TensorType]*blockPool
}

type blockPool struct {
	size   int
	blocks []byte
	// scales holds scaleSteps versions of a block's scale bytes, as whole
	// blocks that are 0 elsewhere; at is where those bytes are.
	scales []byte
	at     span
}

type span struct{ from, to int }

func newWeightWriter(seed uint64, sigma float64) *weightWriter {
	return &weightWriter{seed: seed, sigma: sigma, pools: map[TensorType]*blockPool{}}
}

// rng returns the generator for one purpose, so that files of the same seed
// are the same whatever the order of writing.
func (w *weightWriter) rng(purpose string) *rand.Rand {
	h := fnv.New64a()
	io.WriteString(h, purpose)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

func (w *weightWriter) pool(t TensorType) (*blockPool, error) {
	if p := w.pools[t]; p != nil {
		return p, nil
	}
	kind, ok := blockKinds[t]
	if !ok {
		return nil, fmt.Errorf("random weights of type %v cannot be written", t)
	}
	p := &blockPool{size: int(tensorTypes[t].bytes)}
	rng := w.rng("pool " + t.String())
	p.blocks = make([]byte, poolBlocks*p.size)
	for i := range poolBlocks {
		kind.body(rng, p.blocks[i*p.size:(i+1)*p.size])
	}
	p.at = kind.scaleAt
	p.scales = make([]byte, scaleSteps*p.size)
	for i := range scaleSteps {
		// Factors from 0.8 to 1.2, all different, averaging 1.
		kind.scale(p.scales[i*p.size:(i+1)*p.size], w.sigma, 0.8+0.4*(float64(i)+0.5)/scaleSteps)
	}
	w.pools[t] = p
	return p, nil
}

// write writes a tensor of random weights.
func (w *weightWriter) write(out io.Writer, t Tensor) error {
	p, err := w.pool(t.Type)
	if err != nil {
		return err
	}
	rng := w.rng("tensor " + t.Name)
	next := rng.IntN(poolBlocks)
	chunk := make([]byte, 0, 1<<20/p.size*p.size)
	at := p.at
	for left := t.Bytes; left > 0; {
		n := min(left, int64(cap(chunk)))
		chunk = chunk[:n]
		var random uint64
		for i, have := 0, 0; i < len(chunk); i += p.size {
			if have == 0 {
				random, have = rng.Uint64(), 6
			}
			step := int(random&(scaleSteps-1)) * p.size
			random, have = random>>10, have-1
			block := chunk[i : i+p.size]
			copy(block, p.blocks[next*p.size:(next+1)*p.size])
			copy(block[at.from:at.to], p.scales[step+at.from:step+at.to])
			if next++; next == poolBlocks {
				next = 0
			}
		}
		if _, err := out.Write(chunk); err != nil {
			return err
		}
		left -= n
	}
	return nil
}
