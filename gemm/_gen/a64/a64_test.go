package a64

import (
	"os/exec"
	"strings"
	"testing"
)

// every lists one call of each encoder and the word that an independent assembler
// (LLVM's) gives for the instruction in its comment.
var every = []struct{ got, want string }{
	{Three("fadd", S4, 0, 1, 2), "0x4e22d420"},
	{Three("fadd", D2, 31, 30, 29), "0x4e7dd7df"},
	{Three("fsub", S4, 3, 4, 5), "0x4ea5d483"},
	{Three("fsub", D2, 3, 4, 5), "0x4ee5d483"},
	{Three("fmul", S4, 7, 8, 9), "0x6e29dd07"},
	{Three("fmul", D2, 7, 8, 9), "0x6e69dd07"},
	{Three("fdiv", S4, 10, 11, 12), "0x6e2cfd6a"},
	{Three("fdiv", D2, 10, 11, 12), "0x6e6cfd6a"},
	{Three("fmin", S4, 13, 14, 15), "0x4eaff5cd"},
	{Three("fmla", S4, 16, 17, 18), "0x4e32ce30"},
	{Three("fmla", D2, 16, 17, 18), "0x4e72ce30"},
	{Three("fmls", S4, 19, 20, 21), "0x4eb5ce93"},
	{Three("fmls", D2, 19, 20, 21), "0x4ef5ce93"},
	{Three("faddp", S4, 22, 23, 24), "0x6e38d6f6"},
	{Three("faddp", D2, 22, 23, 24), "0x6e78d6f6"},
	{Three("fcmgt", S4, 25, 26, 27), "0x6ebbe759"},
	{Three("fcmeq", S4, 28, 29, 30), "0x4e3ee7bc"},
	{Element("fmla", S4, 1, 2, 3, 0), "0x4f831041"},
	{Element("fmla", S4, 1, 2, 3, 1), "0x4fa31041"},
	{Element("fmla", S4, 1, 2, 31, 2), "0x4f9f1841"},
	{Element("fmla", S4, 1, 2, 31, 3), "0x4fbf1841"},
	{Element("fmla", D2, 1, 2, 3, 0), "0x4fc31041"},
	{Element("fmla", D2, 1, 2, 31, 1), "0x4fdf1841"},
	{Element("fmls", S4, 4, 5, 6, 3), "0x4fa658a4"},
	{Element("fmls", D2, 4, 5, 6, 1), "0x4fc658a4"},
	{Element("fmul", S4, 4, 5, 6, 2), "0x4f8698a4"},
	{Element("fmul", D2, 4, 5, 6, 0), "0x4fc690a4"},
	{Sqrt(S4, 1, 2), "0x6ea1f841"},
	{Sqrt(D2, 1, 2), "0x6ee1f841"},
	{Widen(3, 4), "0x0e617883"},
	{Narrow(3, 4), "0x0e616883"},
	{ShiftRight(5, 6, 1), "0x4f3f04c5"},
	{ShiftRight(5, 6, 32), "0x4f2004c5"},
	{Clear(7, 8, 9), "0x4e691d07"},
}

func TestEncodingsAreKnown(t *testing.T) {
	for _, e := range every {
		if word := strings.Fields(e.got)[1]; word != "$"+e.want {
			t.Errorf("%s, want %s", e.got, e.want)
		}
	}
}

// TestAnAssemblerAgrees asks llvm-mc, where there is one, for every instruction.
func TestAnAssemblerAgrees(t *testing.T) {
	mc := ""
	for _, name := range []string{"llvm-mc", "llvm-mc-19", "llvm-mc-16", "llvm-mc-14"} {
		if p, err := exec.LookPath(name); err == nil {
			mc = p
			break
		}
	}
	if mc == "" {
		t.Skip("llvm-mc is not installed")
	}
	var source strings.Builder
	for _, e := range every {
		_, text, _ := strings.Cut(e.got, "// ")
		source.WriteString(text + "\n")
	}
	cmd := exec.Command(mc, "-triple=aarch64", "-mattr=+neon", "-show-encoding")
	cmd.Stdin = strings.NewReader(source.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var words []string
	for line := range strings.Lines(string(out)) {
		if _, enc, ok := strings.Cut(line, "encoding: ["); ok {
			b := strings.Split(strings.TrimSpace(enc)[:19], ",")
			words = append(words, "0x"+b[3][2:]+b[2][2:]+b[1][2:]+b[0][2:])
		}
	}
	if len(words) != len(every) {
		t.Fatalf("%d encodings of %d instructions:\n%s", len(words), len(every), out)
	}
	for i, e := range every {
		if words[i] != e.want {
			t.Errorf("%s: llvm-mc says %s", e.got, words[i])
		}
	}
}

func TestUnknownInstructionsPanic(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	Three("fsqrt", S4, 0, 0, 0)
}
