// The one image that plays every role, named as `make image` names it.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const { version } = JSON.parse(readFileSync(join(import.meta.dir, "../../package.json"), "utf8")) as {
  version: string;
};

export const IMAGE = `calico-ts/calico:v${version}`;
