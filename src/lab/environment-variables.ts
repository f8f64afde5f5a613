// Declares the environment variables of `calico lab`.
import type { EnvironmentTable } from "../lib/environment-table.ts";

export const LAB_VARIABLES: EnvironmentTable = {
  CALICO_LAB: { meaning: "Name of the lab, if `--name` is absent.", default: "lab" },
  CALICO_LAB_PATIENCE: { meaning: "Factor for the time that commands wait, for slow machines.", default: "1" },
  XDG_CACHE_HOME: { meaning: "Folder of downloaded Kubernetes programs.", default: "~/.cache" },
  HOME: { meaning: "Passed to the programs of the lab." },
  NO_COLOR: { meaning: "If set, output has no colours." },
  TERM: { meaning: "`dumb`: output has no colours and overwrites no lines." },
};
