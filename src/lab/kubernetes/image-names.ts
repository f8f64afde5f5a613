// Names the images that the lab builds. The registry `localhost` prevents attempts to pull them.
export const PAUSE_IMAGE = "localhost/calico-lab/pause:1";
export const AGNHOST_IMAGE = "localhost/calico-lab/agnhost:1";
export const COREDNS_IMAGE = "localhost/calico-lab/coredns:1";
