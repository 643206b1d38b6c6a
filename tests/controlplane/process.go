package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// child is one running component.
type child struct {
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended
	asked atomic.Bool   // its end was asked for
}

// start runs one component, its output appended to logs/NAME.log.
func (c *cluster) start(name string, args []string) error {
	program, err := c.program(name)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.file("logs/"+name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program[0], append(program[1:], args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.o.data, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // a Ctrl-C on the terminal reaches "up" alone
		Pdeathsig: syscall.SIGKILL, // a killed "up" takes its children along
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	one := &child{cmd: cmd, done: make(chan struct{})}
	c.children[name] = one
	go func() {
		err := cmd.Wait()
		close(one.done)
		if !one.asked.Load() {
			c.exited <- fmt.Errorf("%s ended: %v; see %s", name, err, log.Name())
		}
	}()
	return nil
}

// program is the command that runs a component: the one in --assets, or this same file.
func (c *cluster) program(name string) ([]string, error) {
	if c.o.assets != "" {
		path := filepath.Join(c.o.assets, name)
		if _, err := os.Stat(path); err == nil {
			return []string{path}, nil
		}
	}
	if _, ok := components[name]; !ok {
		return nil, fmt.Errorf("%s is neither in --assets nor in this program", name)
	}
	self, err := os.Executable()
	return []string{self, name}, err
}

// stopOne kills a component and waits for its end. Nothing has to be saved: etcd's data
// outlives its process, and the others keep none.
func (c *cluster) stopOne(name string) {
	one := c.children[name]
	one.asked.Store(true)
	_ = one.cmd.Process.Kill()
	<-one.done
	delete(c.children, name)
}

// stop ends everything, the API server's clients first, and removes what was temporary;
// after a failure the logs stay.
func (c *cluster) stop(failed bool) {
	names := c.wanted()
	for i := len(names) - 1; i >= 0; i-- {
		if c.children[names[i]] != nil {
			c.stopOne(names[i])
		}
	}
	if c.temp != "" {
		_ = os.RemoveAll(c.temp)
	}
	if c.o.removeDir && !failed {
		_ = os.RemoveAll(c.o.dir)
	}
}
