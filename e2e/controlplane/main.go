// Command controlplane is etcd, kube-apiserver and kube-controller-manager in one binary. The name it is
// called by selects the program, so that one build (and one copy on disk) serves all three.
//
// With CONTROLPLANE_EXIT_WITH_STDIN=1 it ends when its standard input does. A test harness holds the other end
// of that pipe: however the harness ends, SIGKILL included, the kernel closes the pipe and no process is left.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

const exitWithStdin = "CONTROLPLANE_EXIT_WITH_STDIN"

func main() {
	if os.Getenv(exitWithStdin) == "1" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	var command *cobra.Command
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllermanager.NewControllerManagerCommand()
	default:
		fmt.Fprintf(os.Stderr, "%s is none of etcd, kube-apiserver, kube-controller-manager: call the binary through a link of such a name\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
