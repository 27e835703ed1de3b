package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/asteria-runtime/asteria/trainer-olmo/energy"
)

// The names of the metrics, those of OLMo-core where it has them.
const (
	mStep      = "step"
	mEpoch     = "epoch"
	mCE        = "train/CE loss"
	mPPL       = "train/PPL"
	mZ         = "train/Z loss"
	mZRaw      = "train/Z loss unscaled"
	mMaskedLab = "train/masked labels (%)"
	mMaskedIns = "train/masked instances (%)"
	mBatch     = "train/global batch size"
	mNorm      = "optim/total grad norm"
	mClip      = "optim/clip coefficient"
	mLR        = "optim/LR (group 0)"
	mAuxLR     = "optim/LR (group 1)"
	mSkipped   = "optim/step skipped"
	mNonFinite = "optim/step non-finite"
	mTPS       = "throughput/device/TPS"
	mTPSAvg    = "throughput/device/TPS (actual avg)"
	mBPS       = "throughput/device/BPS"
	mBPSAvg    = "throughput/device/BPS (actual avg)"
	mLoad      = "throughput/device/data loading (s)"
	mLoadPct   = "throughput/device/data loading (%)"
	mFlops     = "throughput/device/flopsPS"
	mTokens    = "throughput/total tokens"
	mPetaflops = "throughput/total petaflops"
	mChin      = "throughput/chinchilla multiple"
	mAge       = "asteria/adopted age max"
	mRefreshed = "asteria/refreshes"
	mRefFailed = "asteria/refresh failed"
	mInFlight  = "asteria/in flight"
	mBacklog   = "asteria/backlog"
	mLateMax   = "asteria/adopted late max"
	mCoalesced = "asteria/coalesced"
	mSpared    = "asteria/left out"
	mAbandoned = "asteria/abandoned"
	mBarrier   = "asteria/barrier wait (s)"
	mWorkers   = "asteria/workers busy (s)"
	mTime      = "time/step (s)"
	mFirst     = "time/first step of a process"
	mEvalCE    = "eval/lm/held-out/CE loss"
	mEvalPPL   = "eval/lm/held-out/PPL"
	mEvalTime  = "eval/lm/held-out/time (s)"
	mSave      = "checkpoint/save_duration_s"
	mSnapshot  = "checkpoint/snapshot (s)"
	mSaveFail  = "checkpoint/saves failed"
	mAnonymous = "memory/anonymous (bytes)"
	mAnonPeak  = "memory/anonymous peak (bytes)"
)

// metricsFile appends one JSON object for each step.
type metricsFile struct {
	f   *os.File
	buf []byte
	// energy is the joules of the run at the last line that was kept.
	energy [energy.Domains]float64
}

const metricsName = "metrics.jsonl"

// openMetrics opens the file of a run that has done so many steps. Lines of later
// steps, which a killed process wrote after its last checkpoint, and a last line
// that was cut short, are removed.
func openMetrics(folder string, done int64) (*metricsFile, error) {
	f, err := os.OpenFile(filepath.Join(folder, metricsName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	m := &metricsFile{f: f, buf: make([]byte, 0, 4096)}
	end, err := keepLines(f, done, m.remember)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("train: %s: %w", f.Name(), err), f.Close())
	}
	return m, nil
}

// keepSteps returns the length of the part of the file that holds whole lines of
// steps up to done. Steps ascend, so the first later one ends it.
func keepSteps(r io.Reader, done int64) (int64, error) {
	return keepLines(r, done, func([]byte) {})
}

// keepLines is keepSteps that shows every line that stays.
func keepLines(r io.Reader, done int64, kept func(line []byte)) (int64, error) {
	in, end := bufio.NewReader(r), int64(0)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		var rec struct {
			Step *int64 `json:"step"`
		}
		if json.Unmarshal(line, &rec) != nil || rec.Step == nil || *rec.Step > done {
			return end, nil
		}
		end += int64(len(line))
		kept(line)
	}
}

// remember takes from a line what later ones go on from.
func (m *metricsFile) remember(line []byte) {
	var rec struct {
		Package float64 `json:"energy/package total (J)"`
		DRAM    float64 `json:"energy/dram total (J)"`
		GPU     float64 `json:"energy/gpu total (J)"`
	}
	if json.Unmarshal(line, &rec) == nil {
		m.energy = [energy.Domains]float64{rec.Package, rec.DRAM, rec.GPU}
	}
}

// begin starts the object of a step.
func (m *metricsFile) begin(step, epoch int64) {
	m.buf = append(m.buf[:0], '{')
	m.int(mStep, step)
	m.int(mEpoch, epoch)
}

func (m *metricsFile) key(name string) {
	if len(m.buf) > 1 {
		m.buf = append(m.buf, ',')
	}
	m.buf = strconv.AppendQuote(m.buf, name)
	m.buf = append(m.buf, ':')
}

func (m *metricsFile) int(name string, v int64) {
	m.key(name)
	m.buf = strconv.AppendInt(m.buf, v, 10)
}

// num adds a number; JSON has no NaN and no infinities, they become null.
func (m *metricsFile) num(name string, v float64) {
	m.key(name)
	if !finite(v) {
		m.buf = append(m.buf, "null"...)
		return
	}
	m.buf = strconv.AppendFloat(m.buf, v, 'g', -1, 64)
}

// end writes the object in one call, so that a kill cuts at most one line.
func (m *metricsFile) end() error {
	if m.f == nil {
		return nil // another rank writes them
	}
	m.buf = append(m.buf, "}\n"...)
	if _, err := m.f.Write(m.buf); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return nil
}

func (m *metricsFile) close() error {
	if m.f == nil {
		return nil
	}
	return m.f.Close()
}

// Record is a line of metrics.jsonl.
type Record map[string]float64

// ReadMetrics reads the metrics of a run folder. Values that are null are left
// out, and a last line that was cut short is ignored.
func ReadMetrics(folder string) ([]Record, error) {
	raw, err := os.ReadFile(filepath.Join(folder, metricsName))
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	var out []Record
	for n, line := range bytes.SplitAfter(raw, []byte("\n")) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var m map[string]*float64
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("train: %s line %d: %w", filepath.Join(folder, metricsName), n+1, err)
		}
		rec := Record{}
		for k, v := range m {
			if v != nil {
				rec[k] = *v
			}
		}
		out = append(out, rec)
	}
	return out, nil
}

// summarize fills the parts of a result that follow from the metrics.
func summarize(r *Result, recs []Record) {
	r.Loss, r.TailLoss, r.HeldOut, r.HeldOutPPL = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	var times, losses []float64
	warm := 0.0
	for _, rec := range recs {
		if ce, ok := rec[mEvalCE]; ok {
			r.HeldOut, r.HeldOutPPL = ce, rec[mEvalPPL]
		}
		sec, trained := rec[mTime]
		if !trained {
			continue
		}
		r.Steps, r.Tokens = int64(rec[mStep]), int64(rec[mTokens])
		r.Skipped += int64(rec[mSkipped])
		r.NonFinite += int64(rec[mNonFinite])
		r.Seconds += sec
		if ce, ok := rec[mCE]; ok {
			losses = append(losses, ce)
			r.Loss = ce
		}
		if rec[mFirst] == 0 {
			times = append(times, sec)
			warm += rec[mBatch]
		}
	}
	if n := len(losses); n > 0 {
		r.TailLoss = mean(losses[n-(n+9)/10:])
	}
	if len(times) > 0 {
		total := 0.0
		for _, s := range times {
			total += s
		}
		r.TPS = warm / total
		slices.Sort(times)
		r.StepP50, r.StepP99, r.StepMax = quantile(times, 0.5), quantile(times, 0.99), times[len(times)-1]
	}
}

func mean(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s / float64(len(x))
}

// quantile is the smallest value that at least the share q of sorted x does not
// exceed.
func quantile(x []float64, q float64) float64 {
	return x[max(0, int(math.Ceil(q*float64(len(x))))-1)]
}

// Summarize is the result of a run as far as its folder tells.
func Summarize(folder string) (Result, error) {
	r := Result{Folder: folder}
	recs, err := ReadMetrics(folder)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("train: %s is not a run folder: it has no %s", folder, metricsName)
	}
	summarize(&r, recs)
	return r, err
}
