package train

import (
	"context"
	"strings"
	"testing"
)

// What the runtime refuses must come back as its error: nothing was built that could
// be closed.
func TestARefusedRuntimeIsAnErrorAndNoCrash(t *testing.T) {
	c := testConfig(t, t.TempDir(), "optimizer.name=soap", "runtime.mode=asteria", "tiers.host=1KiB")
	_, err := runOn[float32](context.Background(), c, Options{}, openText)
	if err == nil || !strings.Contains(err.Error(), "1024") {
		t.Fatalf("err = %v, want the arithmetic of the host tier", err)
	}
}
