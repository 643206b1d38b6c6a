//go:build !supervisor

package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Left out by the build tag "supervisor": that program starts the components of
// --assets only, needs no module, and is built in a second.
func init() {
	components["etcd"] = func(args []string) int { etcdmain.Main(args); return 0 }
	components["kube-apiserver"] = func(args []string) int {
		os.Args = args
		return cli.Run(apiserver.NewAPIServerCommand())
	}
	components["kube-controller-manager"] = func(args []string) int {
		os.Args = args
		return cli.Run(controllermanager.NewControllerManagerCommand())
	}
	components["kube-scheduler"] = func(args []string) int {
		os.Args = args
		return cli.Run(scheduler.NewSchedulerCommand())
	}
}
