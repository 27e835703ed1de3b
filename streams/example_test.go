package streams_test

import (
	"context"
	"fmt"

	"github.com/asteria-runtime/asteria/streams"
)

// A background stream stages what the main stream consumes; an event orders them.
func Example() {
	device := streams.Host()
	defer device.Close()
	main, err := device.NewStream(streams.Normal)
	if err != nil {
		fmt.Println(err)
		return
	}
	shadow, err := device.NewStream(streams.Low)
	if err != nil {
		fmt.Println(err)
		return
	}
	var staged streams.Event
	page, resident := []byte("roots"), make([]byte, 5)
	_ = shadow.Copy(resident, page)
	_ = shadow.Record(&staged)
	_ = main.Wait(&staged)
	_ = main.Do(func() error { fmt.Println("using", string(resident)); return nil })
	fmt.Println(main.Synchronize(context.Background()))
	// Output:
	// using roots
	// <nil>
}
