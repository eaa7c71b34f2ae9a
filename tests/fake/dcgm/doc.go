// Package dcgm is a fake libdcgm.so.4, written in C, that runs scripts. Tests use it to run the real go-dcgm client and
// the real cgo code without a GPU. Only tests import this package.
//
// Main is called by a package's TestMain. It builds the library with gcc and the headers of the go-dcgm module. Then it
// runs the test binary again with LD_LIBRARY_PATH set, because go-dcgm loads the library by name. New gives a test an
// Engine, which has a script and counters of calls and open handles. The library reads the script again whenever it
// changes. Script and counters are files, so that a program in another process can be tested in the same way.
//
// A script has one command on each line. If several lines match, the last one wins. TARGET is gpu:ID, instance:ID,
// compute:ID, switch:ID, cpu:ID, core:ID, connectx:ID, link:LINK or any:*. ID and LINK may be *. LINK is gpu:ID:INDEX
// or switch:ID:INDEX. FIELDS is an ID or a range. A plus sign in a name stands for a space.
//
//	library V, engine V, driver V, nvml V      versions
//	boot N                                     a changed N means that the engine restarted
//	down                                       the engine is not running
//	old                                        the engine supports only the older structures
//	without KIND...                            the module for a kind (switch, link, cpu, connectx) is missing
//	node                                       replies for fields of the node have no entity
//	skew SECONDS                               the engine's clock minus the test's clock
//	groups N                                   maximum number of groups
//	connects SECONDS                           how long a connect to an engine that is down blocks
//	gpu ID KEY=VALUE...                        a GPU: uuid, name, bus, index, minor, links=N, cpus=LIST, slow=SECONDS,
//	                                           status=ok|lost|unsupported|detached, prof=IDS|none|error:CODE
//	instance ID gpu= nvml= profile= uuid=      a MIG GPU instance
//	compute ID instance= nvml=                 a compute instance
//	switch ID links=N                          an NVSwitch whose first N links are up
//	link LINK state=up|down|disabled|none      the state of a link
//	cpu ID serial= cores=LIST                  a Grace CPU
//	connectx ID                                a ConnectX card
//	path GPU GPU board|pix|pxb|phb|node|sys [nvlinks=N]  the connection of two GPUs
//	value TARGET FIELDS int|double V [STEP]    value of the samples, increased by STEP each time
//	value TARGET FIELDS text V
//	value TARGET FIELDS blank|notfound|unsupported|nopermission [i|d|s]
//	value TARGET FIELDS nodata|stopped         never sampled; no further samples
//	value TARGET FIELDS stuck V                no further samples until the field is watched again
//	value TARGET FIELDS zero V                 0 until the field is watched again
//	event SEQ TARGET FIELD V [SECONDS]         one immediate sample, dated SECONDS ago; SEQ must grow
//	incident TARGET SYSTEM RESULT CODE         a finding of a health check: gpu:0, switch:1, connectx:5, none:0
//	peer GPU GPU STATE                         state of NVLink between two GPUs; 5 if not set
//	profiler CODE                              watches of profiling fields fail with CODE
//	unknown FIELD...                           field IDs that the engine rejects
//	stray GROUP ENTITY FIELD TYPE V            a value in every reply that was not requested; all are numbers, and
//	                                           TYPE also i, d or s
//	fail FUNCTION CODE [TIMES [AFTER]]         calls that return an error; TIMES -1 means always
//	block FUNCTION                             calls that block
//
// These quirks of the real engine are reproduced:
//   - An unwatch of a field of the node returns -16 although the watch is removed. It logs an ERROR for each member
//     (the counter log.unwatch).
//   - A lost GPU cannot be added to groups, and the query for its profiling fields returns -18. Its XID field gets a
//     blank sample with a new time in each interval.
//   - Watches of a detached GPU are removed. Its fields return -16 after it is attached again.
//   - An embedded engine changes the working directory to DCGM_HOME_DIR.
//   - Fields 83 and 84 are sampled at most every 30 s.
//   - Health checks keep each XID of a GPU until the engine restarts. They warn if the counters of power and thermal
//     violations (240 and 241) grew within the last minute.
//
// The counter cost.microseconds adds up the time that calls would take on a real engine: about 500 µs per GPU for a
// read of all samples, and 400 µs for a batched read of any size.
package dcgm
