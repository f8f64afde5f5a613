// Runs the program named by PROGRAM_ENTRY with our arguments, as `main.ts` does for the executable.
const entry = process.env["PROGRAM_ENTRY"];
if (entry === undefined) throw new Error("PROGRAM_ENTRY is not set");
const program = (await import(entry)) as { main(argv: readonly string[]): Promise<number> | number };
process.exitCode = await program.main(process.argv.slice(2));
export {};
