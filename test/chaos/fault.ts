// Runs `break LAB FAULT…` or `heal LAB` in a separate process, so that it does not block the probes of the test.
import { breakLab, healLab } from "../../src/lab/faults.ts";
import { Lab } from "../../src/lab/lab.ts";

const [verb, name = "", ...words] = process.argv.slice(2);
const lab = Lab.open(name);
if (verb === "break") breakLab(lab, words);
else await healLab(lab);
