// Implements `make redteam`: runs attacks for ten minutes and prints the counts.
//   SECONDS=n SEED=n DATAPLANE=nft|iptables IPV6=yes|no
import { down } from "../../src/lab/down.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { attack, renderReport } from "./run.ts";
import { buildScene, LAB } from "./scene.ts";
import { sceneOptions } from "./seed.ts";

const seconds = Number(process.env["SECONDS"] || 600);
const { seed, ...options } = sceneOptions(process.env);
const command = `SECONDS=${seconds} SEED=${seed} DATAPLANE=${options.dataplane} IPV6=${options.ipv6 ? "yes" : "no"}`;
console.log(`redteam: ${command}`);
const terminal = openTerminal({ quiet: true });
try {
  const lab = await buildScene(options, terminal);
  const report = await attack(lab, { seed, seconds });
  console.log(renderReport(report));
  console.log(`the same again: make redteam ${command}`);
  process.exitCode = report.successes.length + report.problems.length === 0 ? 0 : 1;
} finally {
  await down(LAB, terminal);
}
