// Command tools is the workshop of the repository: it generates go.work, builds
// a module proxy from the working tree, and proves with it that every module
// stands alone. It is nested and never tagged, so no library's go.mod grows.
package main

import (
	"fmt"
	"os"
)

// commands are the subcommands; each takes the root of the repository and its
// own arguments.
var commands = []struct {
	name, help string
	run        func(r *repo, args []string) error
}{
	{"modules", "print the library modules, dependencies first", printModules},
	{"work", "write go.work; with -check only compare", writeWork},
	{"proxy", "DIR: write a file proxy of every module to DIR", writeProxy},
	{"tidy", "[MODULE…]: tidy modules (all by default) against the proxy; with -check only compare", tidyAll},
	{"alone", "build and vet each module outside the workspace", aloneAll},
	{"consumer", "go get, build and run each module as a stranger would", consumeAll},
	{"prefix", "PREFIX: rewrite the module prefix everywhere", rewritePrefix},
	{"lint", "check what vet does not: READMEs, package comments, long functions, stray paths", lint},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return usage()
	}
	r, err := openRepo()
	if err != nil {
		return err
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(r, args[1:])
		}
	}
	return usage()
}

func usage() error {
	fmt.Fprintln(os.Stderr, "usage: tools COMMAND")
	for _, c := range commands {
		fmt.Fprintf(os.Stderr, "  %-9s %s\n", c.name, c.help)
	}
	return fmt.Errorf("no such command")
}
