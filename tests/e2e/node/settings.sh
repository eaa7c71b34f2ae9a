# Settings that the scripts of the test node share. The addresses belong to its
# own pair of links; nothing listens on other addresses.
NODE=e2e-node
LINK=dcgm-e2e
HOST_IP=10.111.7.1
NODE_IP=10.111.7.2
CGROUP=dcgm-e2e
IMAGE=e2e.local/hold:1
