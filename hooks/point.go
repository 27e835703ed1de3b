package hooks

import (
	"fmt"
	"strings"
)

// Point is a place in a training step.
type Point uint8

// The points, in the order of a step.
const (
	StepBegin    Point = iota // before the first micro-batch
	PreForward                // layer is about to run forward
	PostForward               // layer has run forward
	PreBackward               // layer is about to run backward
	PostBackward              // layer's gradient of this micro-batch is complete
	GradReady                 // once a step: gradients are complete; no optimizer state has changed yet
	PreUpdate                 // parameters are about to change
	PostUpdate                // parameters have changed
	StepEnd                   // after the step

	points
)

var pointNames = [points]string{
	"StepBegin", "PreForward", "PostForward", "PreBackward", "PostBackward",
	"GradReady", "PreUpdate", "PostUpdate", "StepEnd",
}

// String returns the name of the constant.
func (p Point) String() string {
	if p >= points {
		return fmt.Sprintf("Point(%d)", uint8(p))
	}
	return pointNames[p]
}

// ParsePoint returns the point that is called name.
func ParsePoint(name string) (Point, error) {
	for p, s := range pointNames {
		if s == name {
			return Point(p), nil
		}
	}
	return 0, fmt.Errorf("hooks: unknown point %q, allowed: %s", name, strings.Join(pointNames[:], ", "))
}

// Event tells a hook where and when it runs.
type Event struct {
	Point Point
	Step  int64 // number of the step, as the trainer counts
	Layer int   // index of the layer, -1 when the event is not about one
}

// String gives point, step and, where there is one, layer.
func (e Event) String() string {
	if e.Layer < 0 {
		return fmt.Sprintf("%s, step %d", e.Point, e.Step)
	}
	return fmt.Sprintf("%s, step %d, layer %d", e.Point, e.Step, e.Layer)
}
