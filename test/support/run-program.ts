// Runs the program named by PROGRAM from its source, as main.ts does in the executable.
import { loadMain } from "../../src/programs.ts";

const name = process.env["PROGRAM"];
if (name === undefined) throw new Error("PROGRAM is not set");
const main = await loadMain(name);
process.exitCode = await main(process.argv.slice(2));
