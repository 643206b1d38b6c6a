package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// wanted lists the components of this control plane in the order of their start.
func (c *cluster) wanted() []string {
	names := []string{"etcd", "kube-apiserver"}
	if !c.o.noScheduler {
		names = append(names, "kube-scheduler")
	}
	if !c.o.noManager {
		names = append(names, "kube-controller-manager")
	}
	return names
}

// bringUp starts one component and waits until what it serves is there.
func (c *cluster) bringUp(ctx context.Context, name string) error {
	switch name {
	case "etcd":
		if err := c.startEtcd(); err != nil {
			return err
		}
		// The apiserver would find out by itself, but with a back-off of a second and more.
		return c.waitFor(ctx, etcdClient(c.etcd), "http://etcd/readyz")
	case "kube-apiserver":
		if err := c.startAPIServer(); err != nil {
			return err
		}
		return c.waitForAPI(ctx, "/readyz")
	case "kube-scheduler":
		return c.startScheduler()
	case "kube-controller-manager":
		if err := c.startControllerManager(); err != nil {
			return err
		}
		// The manager makes the service account that any pod in this namespace needs.
		return c.waitForAPI(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	default:
		return fmt.Errorf("no component %q", name)
	}
}

// startEtcd lets etcd listen on a unix socket: no port to find, no other user can reach it.
func (c *cluster) startEtcd() error {
	// A socket file "peer:0" in the working directory: etcd wants HOST:PORT in advertised URLs.
	peer := "unix://peer:0"
	args := []string{
		"--name=controlplane", "--data-dir=" + filepath.Join(c.o.data, "data"),
		"--listen-client-urls=" + c.etcd, "--advertise-client-urls=" + peer,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=controlplane=" + peer,
		"--quota-backend-bytes=8589934592", "--log-level=warn",
	}
	if !c.o.fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return c.start("etcd", append(args, c.o.etcdArgs...))
}

func (c *cluster) startAPIServer() error {
	p := c.pki.path
	args := []string{
		"--etcd-servers=" + c.etcd,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.o.port),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", // loopback may not be an endpoint
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + p("apiserver.crt"), "--tls-private-key-file=" + p("apiserver.key"),
		"--client-ca-file=" + p("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p("sa.key"), "--service-account-signing-key-file=" + p("sa.key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500",
		"--allow-privileged", "--profiling=false",
	}
	if c.o.noManager {
		// Nothing would make the service accounts that this plugin asks for.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.o.tokenFile != "" {
		args = append(args, "--token-auth-file="+c.o.tokenFile)
	}
	return c.start("kube-apiserver", append(c.gated(args), c.o.apiserverArgs...))
}

func (c *cluster) startControllerManager() error {
	p := c.pki.path
	args := []string{
		"--kubeconfig=" + c.file("controller-manager.kubeconfig"),
		"--use-service-account-credentials", // one identity and RBAC role for each controller, as in real clusters
		"--root-ca-file=" + p("ca.crt"),
		"--service-account-private-key-file=" + p("sa.key"),
		"--cluster-signing-cert-file=" + p("ca.crt"), "--cluster-signing-key-file=" + p("ca.key"),
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	}
	if c.o.nodeGrace != "" {
		args = append(args, "--node-monitor-grace-period="+c.o.nodeGrace)
	}
	return c.start("kube-controller-manager", append(c.gated(args), c.o.managerArgs...))
}

func (c *cluster) startScheduler() error {
	args := []string{
		"--kubeconfig=" + c.file("scheduler.kubeconfig"),
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	}
	return c.start("kube-scheduler", append(c.gated(args), c.o.schedulerArgs...))
}

func (c *cluster) gated(args []string) []string {
	if c.o.featureGates != "" {
		args = append(args, "--feature-gates="+c.o.featureGates)
	}
	return args
}

// waitForAPI waits until the API server answers path to the administrator.
func (c *cluster) waitForAPI(ctx context.Context, path string) error {
	client, err := c.adminClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return c.waitFor(ctx, client, c.server+path)
}

// etcdClient is an HTTP client for etcd's unix socket.
func etcdClient(url string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(url, "unix://"))
	}
	return &http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// adminClient is an HTTP client with the admin's certificate.
func (c *cluster) adminClient() (*http.Client, error) {
	cert, err := tls.LoadX509KeyPair(c.pki.path("admin.crt"), c.pki.path("admin.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.pki.ca)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}},
	}}, nil
}

// waitFor polls until url answers 200, a child ends, or ctx does.
func (c *cluster) waitFor(ctx context.Context, client *http.Client, url string) error {
	last := "no answer"
	for {
		if resp, err := client.Get(url); err != nil {
			last = err.Error()
		} else {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = resp.Status
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up on %s: %s; see %s", url, last, c.file("logs"))
		case err := <-c.exited:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
