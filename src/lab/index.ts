export { main } from "./command.ts";
