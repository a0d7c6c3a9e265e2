# Installs the build to a scratch prefix. Then configures, builds and runs the project in this
# directory with only this prefix. CTest runs this script as install.find_package
# (../CMakeLists.txt).
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nfailed (${status}):\n${output}")
  endif()
endfunction()

# Without a change of the headers, the cache has the objects.
find_program(CCACHE ccache)
if(CCACHE)
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} ${CCACHE})
endif()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${PERSEUS_BUILD} --prefix ${SCRATCH}/prefix)
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build -G Ninja
    -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix
    -D LOOP=${EXAMPLES}/client/loop.c -D EXAMPLE=${EXAMPLES}/cpp/plan.cc)
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer)

execute_process(COMMAND ${SCRATCH}/build/simulation
    ${EXAMPLES}/events.toml ${EXAMPLES}/two-pipelines.trace.json ${EXAMPLES}/virtual-node.toml
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE error)
if(NOT status EQUAL 0 OR NOT output STREQUAL "2 stragglers, 6 steps, 8 GPUs\n")
  message(FATAL_ERROR "simulation ended with ${status}:\n${output}${error}")
endif()

# The example reads profile.csv of the current directory and writes plan.json.
file(COPY_FILE ${EXAMPLES}/gpt3-like_a100_pp8.csv ${SCRATCH}/profile.csv)
execute_process(COMMAND ${SCRATCH}/build/example WORKING_DIRECTORY ${SCRATCH}
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE error)
if(NOT status EQUAL 0 OR NOT output MATCHES "saves 8\\.[0-9] %; no plan needs less than [1-9]")
  message(FATAL_ERROR "the example ended with ${status}:\n${output}${error}")
endif()
run(${SCRATCH}/prefix/bin/perseus evaluate ${SCRATCH}/plan.json --profile ${SCRATCH}/profile.csv)

# Runs the loop on a virtual GPU. The installed library starts its own agent.
set(ENV{XDG_RUNTIME_DIR} ${SCRATCH})
set(ENV{PERSEUS_AGENT} own)
set(ENV{PERSEUS_DEVICES} virtual:${SCRATCH}/node.toml)
set(ENV{PERSEUS_GPU} 0)
set(ENV{PERSEUS_PLAN} ${SCRATCH}/planned/plans/slowdown-5.json)
file(WRITE ${SCRATCH}/node.toml "name = \"install\"\ngpus = 1\n[gpu]\nmodel = \"a100-sxm\"\n")
run(${SCRATCH}/prefix/bin/perseus synth --gpu a100 --stages 1 -o ${SCRATCH}/one-stage.csv)
run(${SCRATCH}/prefix/bin/perseus plan ${SCRATCH}/one-stage.csv --schedule gpipe --pp-ranks 1
    --microbatches 4 --blocking-power 84 --slowdown 5 --no-frontier -o ${SCRATCH}/planned)
execute_process(COMMAND ${SCRATCH}/build/loop 0 RESULT_VARIABLE status OUTPUT_VARIABLE output
  ERROR_VARIABLE error)
if(NOT status EQUAL 0 OR NOT output MATCHES "^20 steps, 0 of them off the plan; [1-9][0-9]* clock requests; 0 warnings")
  message(FATAL_ERROR "the loop ended with ${status}:\n${output}${error}")
endif()
