package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// command is one line of standard input: VERB COMPONENT. It is answered by one line
// on standard output: "DONE VERB COMPONENT", or "FAILED VERB COMPONENT: WHY".
//
//	stop COMPONENT       kill it and leave it down; its data stays
//	start COMPONENT      start a stopped one and wait until it is ready
//	restart COMPONENT    both
//	pid COMPONENT        answered by "DONE pid COMPONENT PID"
//
// A component that ends unasked still ends the whole control plane: a test must
// not go on against half of one.
type command struct{ verb, component string }

// readCommands passes on the lines of r, and calls closed at its end.
func readCommands(r io.Reader, closed func()) <-chan command {
	commands := make(chan command)
	go func() {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			verb, component, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
			if verb != "" {
				commands <- command{verb, component}
			}
		}
		closed()
	}()
	return commands
}

// obey carries a command out. It must run on the goroutine that started the others (see up).
func (c *cluster) obey(ctx context.Context, cmd command) {
	ctx, cancel := context.WithTimeout(ctx, c.o.timeout)
	defer cancel()
	answer, err := c.carryOut(ctx, cmd)
	if err != nil {
		// One line, whatever the error holds.
		why := strings.ReplaceAll(err.Error(), "\n", "; ")
		fmt.Printf("FAILED %s %s: %s\n", cmd.verb, cmd.component, why)
		return
	}
	fmt.Printf("DONE %s %s%s\n", cmd.verb, cmd.component, answer)
}

func (c *cluster) carryOut(ctx context.Context, cmd command) (string, error) {
	known := false
	for _, name := range c.wanted() {
		known = known || name == cmd.component
	}
	if !known {
		return "", fmt.Errorf("no such component in this control plane")
	}
	running := c.children[cmd.component]
	switch cmd.verb {
	case "pid":
		if running == nil {
			return "", fmt.Errorf("it is stopped")
		}
		return fmt.Sprintf(" %d", running.cmd.Process.Pid), nil
	case "stop":
		if running == nil {
			return "", fmt.Errorf("it is stopped already")
		}
		c.stopOne(cmd.component)
		return "", nil
	case "start":
		if running != nil {
			return "", fmt.Errorf("it is running already")
		}
		return "", c.bringUp(ctx, cmd.component)
	case "restart":
		if running != nil {
			c.stopOne(cmd.component)
		}
		return "", c.bringUp(ctx, cmd.component)
	default:
		return "", fmt.Errorf("no such command: stop, start, restart or pid is meant")
	}
}
