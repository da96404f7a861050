# Makes a shared library look for its neighbours beside itself ($ORIGIN), not in
# the folder it was built in. usage: cmake -DLIBRARY=FILE -P set-rpath.cmake
file(RPATH_SET FILE ${LIBRARY} NEW_RPATH "$ORIGIN")
