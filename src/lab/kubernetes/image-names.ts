// Images the lab makes itself. Named as if from this machine: nobody goes looking for them elsewhere.
export const PAUSE_IMAGE = "localhost/calico-lab/pause:1";
export const AGNHOST_IMAGE = "localhost/calico-lab/agnhost:1";
export const COREDNS_IMAGE = "localhost/calico-lab/coredns:1";
