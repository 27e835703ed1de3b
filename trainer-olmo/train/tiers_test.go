package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/nvmepage"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// placed plans the optimizer of a run.
func placed(t testing.TB, c *config.Config) asteria.Plan {
	t.Helper()
	o, err := c.AsteriaOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Tiers = &asteria.Tiers{}
	eng := gemm.New(1)
	defer eng.Close()
	m, err := model.New[float32](c.ModelConfig(), eng)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := asteria.PlanFor[float32](asteria.Shapes(m.Params()), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tierOverrides are the placements of a run, by name. In the last one a step of the
// largest block fits and nothing else.
func tierOverrides(p asteria.Plan, nvme string) map[string]string {
	return map[string]string{
		"all resident": fmt.Sprintf("tiers={device: %d, host: %d}", p.Placed, p.Placed),
		"host only":    fmt.Sprintf("tiers={host: %d}", p.Placed),
		"host+NVMe":    fmt.Sprintf("tiers={host: %d, nvme: {path: %q, size: 1GiB}}", p.Placed/2, nvme),
		"tight":        fmt.Sprintf("tiers={host: %d, nvme: {path: %q}}", p.Group, nvme),
	}
}

// The digest of a run depends neither on where its state lives nor on where it
// lived before a resume.
func TestPlacementKeepsTheDigest(t *testing.T) {
	for _, name := range shadowed3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			digest := func(overrides ...string) string {
				folder := t.TempDir()
				mustRun(t, testConfig(t, folder, asteriaRun(name, overrides...)...), Options{})
				return digestOf(t, folder).Total
			}
			want := digest()
			nvme := t.TempDir()
			tiers := tierOverrides(placed(t, testConfig(t, t.TempDir(), asteriaRun(name)...)), nvme)
			for place, override := range tiers {
				if got := digest(override, "train.threads=2", "runtime.workers=2", "checkpoint.interval=7"); got != want {
					t.Errorf("%s: digest %s, want %s", place, got, want)
				}
			}
			folder := t.TempDir()
			for i, place := range []string{"tight", "host+NVMe", "host only"} {
				stop := fmt.Sprintf("train.stop_at=%d", []int{13, 27, 0}[i])
				mustRun(t, testConfig(t, folder, asteriaRun(name, stop, tiers[place])...), Options{})
			}
			if got := digestOf(t, folder).Total; got != want {
				t.Errorf("after two resumes: digest %s, want %s", got, want)
			}
			if left, _ := filepath.Glob(filepath.Join(nvme, "*")); len(left) > 0 {
				t.Errorf("left on NVMe: %v", left)
			}
		})
	}
}

// A run reclaims what a dead one left in the folder of the NVMe tier, and leaves a
// live neighbour alone.
func TestNVMeFolderIsSharedWithTheLiving(t *testing.T) {
	nvme := t.TempDir()
	live, err := nvmepage.Open(nvmepage.Options{Paths: []string{nvme}})
	if err != nil {
		t.Skip("no NVMe store: ", err)
	}
	defer live.Close()
	data := bytes.Repeat([]byte{7}, 10000)
	if err := live.Save(t.Context(), 1, data); err != nil {
		t.Fatal(err)
	}
	dead, err := nvmepage.Open(nvmepage.Options{Paths: []string{nvme}})
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Abandon(); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	tiers := tierOverrides(placed(t, testConfig(t, folder, asteriaRun("soap")...)), nvme)
	var log bytes.Buffer
	mustRun(t, testConfig(t, folder, asteriaRun("soap", tiers["tight"])...), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if left, _ := filepath.Glob(filepath.Join(nvme, "*.lock")); len(left) != 1 {
		t.Errorf("stores left: %v, want the live one", left)
	}
	got := make([]byte, len(data))
	if err := live.Load(t.Context(), 1, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the neighbour's object: %v", err)
	}
	for _, want := range []string{"left-over of a dead store removed", "NVMe tier", "hits="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
}

// The arithmetic names both sides: what a step moves and what the drive can do.
func TestPrefetchArithmetic(t *testing.T) {
	n := &nvme{bandwidth: nvmepage.Bandwidth{Read: 2e9, Write: 1e9}}
	for step, total := range []int64{9e9, 9e9 + 1e8, 9e9 + 5e8, 9e9 + 6e8} { // the first one places the state
		n.note(asteria.TierTotals{Read: total, Written: total / 2, Stepping: time.Duration(total)}, int64(step+1), step == 0)
	}
	got := n.arithmetic(asteria.TierTotals{StepLeases: 1000, StepHits: 400, Read: 10e9, Written: 5e9, Above: 8e8, Stepping: 2 * time.Second}, 10, 0.5)
	for _, want := range []string{"40.0% of the leases", "reads 1000000000 and writes 500000000", "takes 0.500 s", "its update 0.200 s", "takes the drive 1.000 s",
		"800000000 bytes are above the budgets and move during the update, which takes it 1.200 s",
		"the fullest step, 3, read 400000000 and wrote 200000000 bytes, which takes it 0.400 s, in an update of 0.400 s"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := new(nvme).arithmetic(asteria.TierTotals{}, 0, 1); !strings.Contains(got, "was not measured") {
		t.Error(got)
	}
}

// Budgets that hold one block's step and not two are part of the reason.
func TestNarrowBudgetsAreNamed(t *testing.T) {
	var totals asteria.TierTotals
	totals.N = 2
	totals.Tiers[0] = asteria.TierUse{Name: asteria.TierHost, Capacity: 1000}
	totals.Tiers[1] = asteria.TierUse{Name: asteria.TierNVMe, Capacity: 1 << 40}
	if got := tooNarrow(totals, 600); !strings.Contains(got, "1000 bytes hold the step of one large block, which takes up to 600") {
		t.Errorf("%q", got)
	}
	if got := tooNarrow(totals, 500); got != "" {
		t.Errorf("%q", got)
	}
}

// health.json says what the tiers lack.
func TestDegradedTiersAreTold(t *testing.T) {
	got := degradedTiers(lame{})
	text, err := json.Marshal(got)
	if err != nil || len(got) != 3 || !strings.Contains(string(text), "tier nvme: 3 writes failed") || !strings.Contains(string(text), "tier host: 5 bytes above") {
		t.Errorf("%s %v", text, err)
	}
	if degradedTiers(nil) != nil {
		t.Error("reasons without tiers")
	}
}

// lame has tiers in which everything went wrong.
type lame struct{}

func (lame) Anticipate()           {}
func (lame) Freeze() (thaw func()) { return func() {} }
func (lame) Tiers() asteria.TierTotals {
	t := asteria.TierTotals{N: 2, Lost: 9}
	t.Tiers[0] = asteria.TierUse{Name: "host", Over: 5, Capacity: 10}
	t.Tiers[1] = asteria.TierUse{Name: "nvme", Degraded: true, Failures: 3}
	return t
}
