package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// findPython returns an interpreter that has PyTorch, or why there is none.
func findPython(root, wanted string) (string, error) {
	tried := []string{filepath.Join(root, ".cache/bench/torch/bin/python"), "python3", "/usr/bin/python3"}
	if wanted != "" {
		tried = []string{wanted}
	}
	for _, p := range tried {
		if exec.Command(p, "-c", "import torch").Run() == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no Python with PyTorch (tried %s)", strings.Join(tried, ", "))
}

// peer is a PyTorch process that takes steps on demand. Between them it sleeps.
type peer struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  strings.Builder
	Version string `json:"version"`
	BLAS    string `json:"blas"`
	Params  int    `json:"params"`
}

// variant is one configuration of the peer.
type variant struct {
	name string
	args []string
}

func variants(optimizer string) []variant {
	v := []variant{{"eager", nil}, {"compiled", []string{"--compile"}}}
	if optimizer == "soap" {
		v = append(v, variant{"compiled, momentum moved at refreshes", []string{"--compile", "--momentum", "refresh"}})
	}
	return v
}

func startPeer(python, script string, c *config.Config, threads int, v variant) (*peer, error) {
	seq := c.Data.SequenceLength
	args := []string{script, "--threads", strconv.Itoa(threads), "--optimizer", c.Optimizer.Name,
		"--frequency", strconv.Itoa(c.Optimizer.PreconditionFrequency)}
	m := c.ModelConfig()
	for name, n := range map[string]int{"width": m.DModel, "layers": m.NLayers, "heads": m.NHeads, "hidden": m.HiddenSize,
		"vocab": m.VocabSize, "seq": seq, "rows": int(c.Train.GlobalBatchSize) / seq} {
		args = append(args, "--"+name, strconv.Itoa(n))
	}
	p := &peer{name: v.name, cmd: exec.Command(python, append(args, v.args...)...)}
	p.cmd.Env = peerEnvironment(threads)
	p.cmd.Stderr = &p.stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.read(p); err != nil {
		return nil, p.fail(err)
	}
	return p, nil
}

// peerEnvironment leaves the choice of kernels to the libraries.
func peerEnvironment(threads int) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "OPENBLAS_") && !strings.HasPrefix(kv, "OMP_") && !strings.HasPrefix(kv, "MKL_") {
			env = append(env, kv)
		}
	}
	return append(env, fmt.Sprintf("OMP_NUM_THREADS=%d", threads))
}

// read decodes the next line; other output of the process is passed over.
func (p *peer) read(v any) error {
	for {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			return err
		}
		if json.Unmarshal(line, v) == nil {
			return nil
		}
	}
}

func (p *peer) run(n int) (times []sample, err error) {
	if _, err := fmt.Fprintf(p.in, "run %d\n", n); err != nil {
		return nil, p.fail(err)
	}
	if err := p.read(&times); err != nil {
		return nil, p.fail(err)
	}
	return times, nil
}

// fail ends the process and adds what it said.
func (p *peer) fail(err error) error {
	p.close()
	said := strings.TrimSpace(p.stderr.String())
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	return fmt.Errorf("PyTorch, %s: %w: %s", p.name, err, said)
}

func (p *peer) close() {
	p.in.Close()
	p.cmd.Wait()
}
