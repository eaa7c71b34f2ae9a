// Package dcgm is a libdcgm.so.4 of the project's own, written in C, that plays scripts, so that
// tests run the real go-dcgm client and the real cgo path without a GPU. Only tests import it.
//
// Main, called from a package's TestMain, builds the library with gcc against the headers of the
// go-dcgm module and runs the test binary again with LD_LIBRARY_PATH set, since go-dcgm loads the
// library by its name. New gives a test an Engine: a script that the library reads again whenever
// it changes, and the counters that it keeps of calls and open handles. Both are files, so that a
// program under test in another process can be driven the same way.
//
// A script has a command a line; the last line that matches wins. TARGET is gpu:ID, instance:ID,
// compute:ID, switch:ID, cpu:ID, core:ID, connectx:ID, link:LINK or any:*, where ID and LINK may be
// *; LINK is gpu:ID:INDEX or switch:ID:INDEX; FIELDS is an id or a range. A plus sign in a name is
// a blank.
//
//	library V, engine V, driver V, nvml V      versions
//	boot N                                     another N is another engine
//	down                                       the engine is gone
//	old                                        an engine that knows the older structures alone
//	without KIND...                            the module for a kind of entity (switch, link, cpu, connectx) is missing
//	node                                       fields of the node come back under no entity
//	skew SECONDS                               its clock minus ours
//	groups N                                   how many groups it can hold
//	connects SECONDS                           how long a connect to an engine that is down blocks
//	gpu ID uuid= name= bus= index= minor= status=ok|lost|unsupported|detached prof=IDS|none|error:CODE links=N cpus=LIST slow=SECONDS
//	instance ID gpu= nvml= profile= uuid=      a MIG GPU instance
//	compute ID instance= nvml=                 a compute instance
//	switch ID links=N                          an NVSwitch whose first N links are up
//	link LINK state=up|down|disabled|none      the state of one link
//	cpu ID serial= cores=LIST                  a Grace CPU
//	connectx ID                                a ConnectX card
//	path GPU GPU board|pix|pxb|phb|node|sys [nvlinks=N]  the way between two GPUs
//	value TARGET FIELDS int|double V [STEP]    what a sample holds, STEP more each time
//	value TARGET FIELDS text V
//	value TARGET FIELDS blank|notfound|unsupported|nopermission [i|d|s]
//	value TARGET FIELDS nodata|stopped         never sampled; no further sample
//	value TARGET FIELDS stuck V                no further sample until it is watched again
//	value TARGET FIELDS zero V                 0 until it is watched again
//	event SEQ TARGET FIELD V [SECONDS]         one sample, at once, dated so long before; SEQ grows
//	incident TARGET SYSTEM RESULT CODE         a finding of a health check: gpu:0, switch:1, connectx:5, none:0
//	peer GPU GPU STATE                         of NVLink between them, else 5
//	profiler CODE                              watches of profiling fields fail with CODE
//	unknown FIELD...                           field ids that the engine refuses
//	stray GROUP ENTITY FIELD TYPE V            a value in every reply that was not requested; numbers, and i, d, s or a number
//	fail FUNCTION CODE [TIMES [AFTER]]         calls that return an error, -1 times forever
//	block FUNCTION                             calls that do not return
//
// It is as ugly as the real engine where the project has seen that:
//   - An unwatch of a field of the node answers -16 although the watch is gone, with an ERROR in its log for each member
//     (the counter log.unwatch).
//   - A lost GPU is refused in groups and by the query for its profiling fields (-18). Its XID field gets a blank sample
//     with a fresh time in each interval.
//   - Watches of a detached GPU are dropped, and its fields answer -16 when it is attached again.
//   - Fields 83 and 84 are sampled every 30 s at most.
//
// The counter cost.microseconds adds up the cost of
// the calls to libdcgm on the real engine (a read of every sample some 500 a GPU, a batched read 400
// whatever its size).
//
// Its health checks are as wrong as the engine's. They keep each XID of a GPU until the engine restarts, and warn while
// the counters of power and thermal violations (240 and 241) grew within a minute.
package dcgm
