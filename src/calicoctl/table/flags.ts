// Flags that several commands share, worded once.
import type { Flag } from "../command.ts";

export const CONFIG: Flag = {
  name: "config",
  short: "c",
  value: "CONFIG",
  about:
    "file with the connection to the datastore; default /etc/calico/calicoctl.cfg, and without that the environment",
};
export const NAMESPACE: Flag = {
  name: "namespace",
  short: "n",
  value: "NS",
  about: "namespace of namespaced resources that name none; without it `default`",
};
export const INPUT: readonly Flag[] = [
  {
    name: "filename",
    short: "f",
    value: "FILENAME",
    about: "file or directory with the resources as YAML or JSON, or - for standard input",
  },
  { name: "recursive", short: "R", about: "with a directory: its subdirectories too" },
  { name: "skip-empty", about: "a file or directory without resources is no error" },
];
